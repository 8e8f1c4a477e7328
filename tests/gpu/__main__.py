"""Everything that a machine with a GPU can show, in under ten minutes: tests/gpu.sh [FOLDER].

Its parts are agreement, breakdown, memory, profile and speed. A check that fails stops no other. The folder gets summary.txt,
summary.json, the records of all runs, what they printed, and traces. Exit status 1 where a check failed.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
from pathlib import Path

from common import records
from common.errors import UserError
from tests.gpu import agreement, breakdown, checking, memory, profile, speed
from tests.gpu.running import Session

# In this order: the last one fills the time that is left.
PARTS = {"agreement": agreement, "breakdown": breakdown, "memory": memory, "profile": profile, "speed": speed}


def main():
    begun = time.monotonic()
    parser = argparse.ArgumentParser(prog="tests/gpu.sh", description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="folder to write to (default: results/gpu-HOST-TIME)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="cpu: a rehearsal with small models")
    parser.add_argument("--minutes", type=float, default=9.5, help="time limit; what does not fit is skipped (default: 9.5)")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"default: {','.join(PARTS)}")
    parser.add_argument("--backends", help="only these, separated by commas (default: every backend that can run here)")
    try:
        sys.exit(check_all(parser.parse_args(), begun))
    except UserError as problem:
        parser.error(str(problem))


def check_all(arguments, begun):
    """Makes the checks and returns the exit status. Raises UserError, before anything is written, for what cannot work."""
    if unknown := [name for name in arguments.parts.split(",") if name not in PARTS]:
        raise UserError(f"there is no part {unknown[0]!r}; choose from: {', '.join(PARTS)}")
    if not arguments.minutes > 0:
        raise UserError(f"--minutes is {arguments.minutes:g}; it must be above 0")
    folder = arguments.folder or records.ROOT / "results" / f"gpu-{platform.node()}-{time.strftime('%Y%m%d-%H%M%S')}"
    with tempfile.TemporaryDirectory() as scratch:
        seconds = 60 * arguments.minutes
        session = Session.begin(folder.absolute(), Path(scratch), arguments.device, seconds, begun + seconds, arguments.backends)
        folder.mkdir(parents=True, exist_ok=True)
        print(session.about, flush=True)
        checks = []
        for name in arguments.parts.split(","):
            for check in checking.run_part(name, PARTS[name], session):
                checks.append(check)
                print(check.line(), flush=True)
    seconds = time.monotonic() - begun
    text = checking.summary(checks, session.about, seconds)
    (folder / "summary.txt").write_text(text)
    found = {"about": session.about, "seconds": seconds, "checks": [check._asdict() for check in checks]}
    (folder / "summary.json").write_text(json.dumps(found, indent=1))
    print(f"{text}written to {folder}")
    return int(any(check.status == "failed" for check in checks))


if __name__ == "__main__":
    main()
