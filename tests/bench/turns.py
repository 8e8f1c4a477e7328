"""What the first step of a turn costs: python -m tests.bench.turns FOLDER

Prints, for each backend of the records of a folder that took turns, how much longer the first steps of its turns are than the median of the
other steps of their turn, together in percent of an epoch, as the mean of its runs.
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
    percents = defaultdict(list)
    records, _ = files.collect([folder])
    for record in records:
        if record.num_turns and record.status == "ok":
            percents[record.workload, record.backend].append(100 * share_of_first_steps(record))
    print("| workload | backend | runs | first steps of turns, % of an epoch |\n| --- | --- | --- | --- |")
    for (workload, backend), of_runs in sorted(percents.items()):
        print(f"| {workload} | {backend} | {len(of_runs)} | {statistics.fmean(of_runs):.2f} |")


def share_of_first_steps(record: Record) -> float:
    """The seconds by which first steps are longer than the median of the other steps of their turn, over those of all steps."""
    num_epochs = len(record.train_seconds)
    num_steps = len(record.step_seconds) // num_epochs
    # The last turn of a run ends with it and is not counted.
    num_in_turn = math.ceil(num_steps / round((record.num_turns + 1) / num_epochs))
    epochs = [record.step_seconds[start : start + num_steps] for start in range(0, len(record.step_seconds), num_steps)]
    turns = [epoch[start : start + num_in_turn] for epoch in epochs for start in range(0, num_steps, num_in_turn)]
    return sum(turn[0] - statistics.median(turn[1:]) for turn in turns if len(turn) > 2) / sum(record.step_seconds)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
