"""What the first step of a turn costs: python -m tests.bench.turns FOLDER

Prints, for each backend of the records of a folder that took turns, how much longer the first step of an epoch is, and that of another
turn, than the median of the other steps of its turn, as a share of an epoch's time: the mean of the runs. An epoch's first step is longer
without turns too; that of another turn is what turns cost.
"""

import math
import statistics
import sys
from collections import defaultdict
from pathlib import Path

from common.record import files
from common.record.definition import Record


def main(folder: Path) -> None:
    """Prints the table, in Markdown."""
    shares = defaultdict(list)
    records, _ = files.collect([folder])
    for record in records:
        if record.num_turns and record.status == "ok":
            shares[record.workload, record.backend].append(shares_of_first_steps(record))
    print("| workload | backend | runs | first steps of epochs, % of an epoch | of other turns, % |\n| --- | --- | --- | --- | --- |")
    for (workload, backend), of_runs in sorted(shares.items()):
        of_epochs, of_turns = (100 * statistics.fmean(shares_of_runs) for shares_of_runs in zip(*of_runs, strict=True))
        print(f"| {workload} | {backend} | {len(of_runs)} | {of_epochs:.2f} | {of_turns:.2f} |")


def shares_of_first_steps(record: Record) -> tuple[float, float]:
    """The seconds by which the first steps of epochs, and of other turns, exceed the other steps of their turn, over those of all steps."""
    num_epochs = len(record.train_seconds)
    num_steps = len(record.step_seconds) // num_epochs
    # The last turn of a run ends with it and is not counted.
    num_in_turn = math.ceil(num_steps / round((record.num_turns + 1) / num_epochs))
    excess = {True: 0.0, False: 0.0}
    for start in range(0, len(record.step_seconds), num_steps):
        epoch = record.step_seconds[start : start + num_steps]
        for place in range(0, num_steps, num_in_turn):
            turn = epoch[place : place + num_in_turn]
            if len(turn) > 2:
                excess[place == 0] += turn[0] - statistics.median(turn[1:])
    return excess[True] / sum(record.step_seconds), excess[False] / sum(record.step_seconds)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
