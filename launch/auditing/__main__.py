"""Watches an unmodified PyTorch script, and says whether it trains what it seems to: launch/audit [--steps NUMBER] -- COMMAND …

COMMAND starts the script on its ranks, as in: launch/audit -- torchrun --nproc-per-node 4 train.py. The verdicts are printed on stderr
after it has ended. The exit status is that of a command that failed; else 1 if a check is wrong, 3 if none could be seen, and 0 otherwise.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from launch.auditing import checks, observations

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parents[1] / "results"


def main() -> int:
    parser = argparse.ArgumentParser(prog="launch/audit", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50, help="optimizer steps of which every gradient is watched (default: 50)")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="what starts the script on its ranks")
    arguments = parser.parse_args()
    command = arguments.command[arguments.command[:1] == ["--"] :]
    if arguments.steps < 1:
        parser.error(f"--steps is {arguments.steps}; it is at least 1")
    if not command or shutil.which(command[0]) is None:
        missing = f"there is no program {command[0]}" if command else "a command is missing"
        parser.error(f"{missing}; the script's own command follows, as in: launch/audit -- torchrun --nproc-per-node 2 train.py")
    # On several nodes all ranks write here, and a checkout is on a file system that the nodes share.
    place = RESULTS if os.access(RESULTS, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=".audit-", dir=place, ignore_cleanup_errors=True) as folder:
        status = run(command, folder, arguments.steps)
        verdicts = checks.judge(observations.read(Path(folder)))
    for verdict in verdicts:
        print(f"{verdict.verdict:<16}  {verdict.check:<10}  {verdict.reason}", file=sys.stderr)
    kinds = {verdict.verdict for verdict in verdicts}
    if not status and checks.WRONG in kinds:
        return 1
    return status or (3 if kinds == {checks.UNSEEN} else 0)


def run(command: list[str], folder: str, num_steps: int) -> int:
    """The exit status of a command whose processes are watched, as a shell has it."""
    places = [str(HERE / "watching"), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {"PYTHONPATH": os.pathsep.join(places), "TANDEM_AUDIT_FOLDER": folder, "TANDEM_AUDIT_STEPS": str(num_steps)}
    process = subprocess.Popen(command, env=os.environ | variables)
    # A terminal interrupts the command itself too, whose verdicts are printed then.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    status = process.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
