"""Drawing by vl_convert, in a process of its own: where memory is short, V8 ends the process it is in."""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from common import cache
from common.declarations import ROOT
from common.errors import UserError, printable

# Of Vega-Lite, as in the specifications that Altair writes.
VERSION = "6.4"
# The SHA-256 of its bundle by the vl-convert-python of environment.yml: that of another version is made anew each time.
DIGEST = "3425bd951a44d478d0505c6b5d1e8d57656b6e9a4da7bfe88a718ce61d76e572"
# Width of a picture in pixels.
WIDTH = 620
CONFIG = {"background": "#fff", "font": "sans-serif", "view": {"stroke": None}}
LONGEST_REASON = 200
# The program that draws, which imports no module from the folder of a user.
PROGRAM = (sys.executable, str(ROOT / "launch" / "run_module.py"), "launch.report.export.drawing")


class NotDrawn(UserError):
    """A chart that could not be drawn, and why."""


def svg(spec: dict[str, Any]) -> str:
    """Returns a Vega-Lite specification as SVG text. Raises NotDrawn where that fails."""
    return _drawn("vegalite_to_svg", vl_spec=_printable(spec) | {"config": CONFIG})


@contextlib.contextmanager
def home_folder() -> Iterator[None]:
    """Gives a user who has no home folder an empty one: Altair looks for it when it is imported."""
    has_home = "HOME" in os.environ
    os.environ.setdefault("HOME", os.devnull)
    yield
    if not has_home:
        del os.environ["HOME"]


def library() -> str:
    """Returns Vega, Vega-Lite and Vega-Embed, as bundled with the package: nothing is fetched. Raises NotDrawn where that fails.

    Bundling takes seconds, so the text is kept in the cache. Others may write there, and it becomes part of the page.
    """
    folder = cache.folder()
    file = folder and folder / f"vega-lite-{VERSION}.js"
    text = cache.read(file)
    if not text or hashlib.sha256(text.encode()).hexdigest() != DIGEST:
        text = _drawn("javascript_bundle")
        cache.write(file, text)
    return text


def _printable(value: Any) -> Any:
    """Returns a value of a specification, whose texts have printable characters only: no picture can hold others."""
    match value:
        case str():
            return printable(value)
        case dict():
            return {name: _printable(item) for name, item in value.items()}
        case list():
            return [_printable(item) for item in value]
    return value


def _drawn(function: str, **arguments: Any) -> str:
    """Calls a function of vl_convert in a process of its own."""
    call = json.dumps({"function": function, "arguments": arguments | {"vl_version": VERSION}})
    process = subprocess.run(PROGRAM, input=call.encode(), capture_output=True, check=False)
    if process.returncode:
        lines = [text for line in process.stderr.decode(errors="replace").splitlines() if (text := line.strip("# "))]
        by_signal = process.returncode < 0
        ended = f"was ended by {signal.Signals(-process.returncode).name}" if by_signal else "failed"
        # V8 gives the cause before its stack, Python after it, and JavaScript's own stack comes last.
        causes = [line for line in lines if not line.startswith("at ")]
        reason = causes[0 if by_signal else -1][:LONGEST_REASON] if causes else ""
        raise NotDrawn(printable(f"drawing {ended}" + (f" ({reason})" if reason else "")))
    return process.stdout.decode()


def main() -> None:
    """Calls the function of vl_convert that standard input names, and writes what it returns; V8 leaves no core where it fails."""
    import vl_convert

    # Windows has no such limit.
    with contextlib.suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    call = json.load(sys.stdin)
    sys.stdout.buffer.write(getattr(vl_convert, call["function"])(**call["arguments"]).encode())


if __name__ == "__main__":
    main()
