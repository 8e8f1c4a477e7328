"""Drawing by vl_convert, in a process of its own: where memory is short, V8 ends the process it is in."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from common.declarations import ROOT
from common.errors import UserError, printable

# Of Vega-Lite, as in the specifications that Altair writes.
VERSION = "6.4"
CONFIG = {"font": "sans-serif", "view": {"stroke": None}}
LONGEST_REASON = 200
# The program that draws, which imports no module from the folder of a user.
PROGRAM = (sys.executable, str(ROOT / "launch" / "run_module.py"), "launch.report.export.drawing")


class NotDrawn(UserError):
    """A chart that could not be drawn, and why."""


@contextlib.contextmanager
def home_folder() -> Iterator[None]:
    """Gives a user who has no home folder an empty one: Altair looks for it when it is imported."""
    has_home = "HOME" in os.environ
    os.environ.setdefault("HOME", os.devnull)
    yield
    if not has_home:
        del os.environ["HOME"]


def svgs(specs: Sequence[dict[str, Any]], background: str | None = "#fff") -> list[str]:
    """Returns Vega-Lite specifications as SVG texts. Raises NotDrawn where that fails."""
    if not specs:
        return []
    config = CONFIG | {"background": background}
    process = subprocess.run(
        PROGRAM, input=json.dumps([spec | {"config": config} for spec in specs]).encode(), capture_output=True, check=False
    )
    if process.returncode:
        lines = [text for line in process.stderr.decode(errors="replace").splitlines() if (text := line.strip("# "))]
        by_signal = process.returncode < 0
        ended = f"was ended by {signal.Signals(-process.returncode).name}" if by_signal else "failed"
        # V8 gives the cause before its stack, Python after it, and JavaScript's own stack comes last.
        causes = [line for line in lines if not line.startswith("at ")]
        reason = causes[0 if by_signal else -1][:LONGEST_REASON] if causes else ""
        raise NotDrawn(printable(f"drawing {ended}" + (f" ({reason})" if reason else "")))
    return json.loads(process.stdout)


def main() -> None:
    """Draws the specifications of standard input, and writes the pictures as a JSON list; V8 leaves no core where it fails."""
    import vl_convert

    # Windows has no such limit.
    with contextlib.suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    json.dump([vl_convert.vegalite_to_svg(vl_spec=spec, vl_version=VERSION) for spec in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
