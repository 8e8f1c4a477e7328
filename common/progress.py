"""One line with the progress of a run: printed by rank 0, read again by the launcher's live display."""

import math
import re
import time
from typing import NamedTuple

MARK = "progress:"
# Of texts that are encoded in less time nothing is shown.
SILENT_SECONDS, INTERVAL_SECONDS = 3.0, 1.0


class Progress(NamedTuple):
    """How far a run is. `loss` is rank 0's own; `accuracy` is the last evaluation's; None before there is one."""

    epoch: int
    num_epochs: int
    step: int
    num_steps: int
    loss: float | None
    accuracy: float | None
    elapsed_seconds: float

    def seconds_left(self):
        """Until all epochs are done, at the pace so far, rounded up to whole seconds; meeting the target ends the run before that.

        None until an epoch is done with its evaluation, which gives the pace, and after the last step: only evaluation is left then.
        """
        has_pace = self.epoch > 1 or (self.step == self.num_steps and self.accuracy is not None)
        num_done, num_all = (self.epoch - 1) * self.num_steps + self.step, self.num_epochs * self.num_steps
        return math.ceil(self.elapsed_seconds / num_done * (num_all - num_done)) if has_pace and num_done < num_all else None


def format_line(progress):
    def number(value, form):
        return "-" if value is None else format(value, form)

    return (
        f"{MARK} epoch {progress.epoch}/{progress.num_epochs} step {progress.step}/{progress.num_steps} "
        f"loss {number(progress.loss, '.4f')} accuracy {number(progress.accuracy, '.4f')} "
        f"elapsed {progress.elapsed_seconds:.1f} s left {number(progress.seconds_left(), 'd')} s"
    )


def no_progress(num_done, num_all):
    """An on_progress of common/data/datasets.py that does nothing."""


def reading(show, now=time.monotonic, label="reading the data"):
    """The on_progress of common/data/datasets.py that calls show(line) once per second, but not in the first seconds."""
    last = now() + SILENT_SECONDS - INTERVAL_SECONDS

    def on_progress(num_done, num_all):
        nonlocal last
        if (moment := now()) - last >= INTERVAL_SECONDS:
            last = moment
            show(f"{label}: {num_done / num_all:.0%}")

    return on_progress


NUMBER = r"(-|nan|-?inf|-?[\d.]+)"
LINE = re.compile(MARK + rf" epoch (\d+)/(\d+) step (\d+)/(\d+) loss {NUMBER} accuracy {NUMBER} elapsed ([\d.]+) s left \S+ s")


def read_line(line):
    """The Progress of a line that `format_line` made, or None for any other line."""
    match = LINE.search(line)
    if not match:
        return None
    loss, accuracy = (None if text == "-" else float(text) for text in match.group(5, 6))
    return Progress(*map(int, match.group(1, 2, 3, 4)), loss, accuracy, float(match[7]))
