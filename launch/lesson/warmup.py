"""What warm-up of the learning rate does: the CNN with Adam at a rate scaled with the ranks, once without and once with it.

python -m launch.lesson.warmup [RANKS] [OPTIONS OF launch/matrix.sh], such as 4 --epochs 6 --seed 2
"""

import subprocess
import sys
from collections.abc import Sequence
from itertools import zip_longest

from common.declarations import ROOT
from common.record import files
from common.terminal import Table, filled, print_tables
from launch.lesson import running

TRAINING = (
    "--backends", "ddp", "--workloads", "cnn", "--optimizer", "adam", "--learning-rate", "0.01", "--batch-size", "8", "--epochs", "14",
    "--no-stop-at-target", "--no-step-breakdown",
)  # fmt: skip
CASES = {"without": "0", "with": "3"}


def accuracies(case: str) -> list[float | None]:
    """Returns the accuracies of a run, by a matrix with a folder of its own. Ends the process if the run did not complete."""
    (ranks, options), folder = running.arguments("8"), running.new_folder(f"warmup-{case}")
    command = [sys.executable, "-m", "launch.matrix", ranks, *TRAINING, "--warmup-epochs", CASES[case], *options, "--results", str(folder)]
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    completed = [record for record in files.collect([folder])[0] if record.status == "ok"] if folder.exists() else []
    if not completed:
        sys.exit(status)
    return completed[0].accuracies


def table_of(without: Sequence[float | None], warmed: Sequence[float | None]) -> list[Table]:
    """Makes a table of the accuracies of both runs, epoch by epoch."""
    rows = [
        {"epoch": epoch} | {f"accuracy {case} warm-up": accuracy for case, accuracy in zip(CASES, accuracies, strict=True)}
        for epoch, accuracies in enumerate(zip_longest(without, warmed), 1)
    ]
    return filled("", rows)


def main() -> None:
    """Runs the lesson."""
    without, warmed = map(accuracies, CASES)
    endings = f"{without[-1]:.2f} without warm-up, {warmed[-1]:.2f} with it"
    print_tables(table_of(without, warmed), [f"accuracy after {len(warmed)} epochs: {endings}; of ten digits chance is 0.10"])


if __name__ == "__main__":
    main()
