"""One line that says how far a run is: printed by rank 0, read again by the launcher's live display."""

import re
from typing import NamedTuple

MARK = "progress:"


class Progress(NamedTuple):
    """Where a run stands. `loss` is rank 0's own; `accuracy` is the last evaluation's; None before there is one."""

    epoch: int
    num_epochs: int
    step: int
    num_steps: int
    loss: float | None
    accuracy: float | None
    elapsed_seconds: float

    def seconds_left(self):
        """Until all epochs are done, at the pace so far; meeting the target ends the run before that. None at the start."""
        done = (self.epoch - 1) * self.num_steps + self.step
        return self.elapsed_seconds * (self.num_epochs * self.num_steps / done - 1) if done else None


def format_line(progress):
    def number(value, form):
        return "-" if value is None else format(value, form)

    left = progress.seconds_left()
    return (
        f"{MARK} epoch {progress.epoch}/{progress.num_epochs} step {progress.step}/{progress.num_steps} "
        f"loss {number(progress.loss, '.4f')} accuracy {number(progress.accuracy, '.4f')} "
        f"elapsed {progress.elapsed_seconds:.1f} s left {number(left, '.0f')} s"
    )


NUMBER = r"(-|nan|-?inf|-?[\d.]+)"
LINE = re.compile(MARK + rf" epoch (\d+)/(\d+) step (\d+)/(\d+) loss {NUMBER} accuracy {NUMBER} elapsed ([\d.]+) s left \S+ s")


def read_line(line):
    """The Progress of a line that `format_line` made, or None for any other line."""
    found = LINE.search(line)
    if not found:
        return None
    loss, accuracy = (None if text == "-" else float(text) for text in found.group(5, 6))
    return Progress(*map(int, found.group(1, 2, 3, 4)), loss, accuracy, float(found[7]))
