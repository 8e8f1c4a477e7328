"""How far a run is, and how far the reading of its data is, as rank 0 shows it."""

import math
import time
from collections.abc import Callable
from typing import Annotated, NamedTuple

from common.bounds import FROM_0, FROM_1
from common.metric import Metric

# A function that is called with the amount that is read, and the whole amount.
OnProgress = Callable[[int, int], None]

# Data that is read in less time shows no progress.
SILENT_SECONDS, INTERVAL_SECONDS = 3.0, 1.0


class Progress(NamedTuple):
    """How far a run is. `loss` is that of rank 0, `accuracy` the `metric` of the last evaluation; None before there is one."""

    epoch: Annotated[int, FROM_1]
    num_epochs: Annotated[int, FROM_0]
    step: Annotated[int, FROM_0]
    num_steps: Annotated[int, FROM_0]
    loss: float | None
    accuracy: float | None
    elapsed_seconds: Annotated[float, FROM_0]
    metric: Metric = "accuracy"

    def seconds_left(self) -> int | None:
        """Estimates the time until all epochs are done, at the pace so far, rounded up; meeting the target ends the run before that.

        None until an epoch is done with its evaluation, which gives the pace, and after the last step, when only the evaluation is left.
        """
        has_pace = self.epoch > 1 or (self.step == self.num_steps and self.accuracy is not None)
        num_done, num_all = (self.epoch - 1) * self.num_steps + self.step, self.num_epochs * self.num_steps
        return math.ceil(self.elapsed_seconds / num_done * (num_all - num_done)) if has_pace and num_done < num_all else None


def format_line(progress: Progress) -> str:
    """Formats the line of a run that no matrix has started."""

    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    return (
        f"progress: epoch {progress.epoch}/{progress.num_epochs} step {progress.step}/{progress.num_steps} "
        f"loss {number(progress.loss, '.4f')} {progress.metric} {number(progress.accuracy, '.4f')} "
        f"elapsed {progress.elapsed_seconds:.1f} s left {number(progress.seconds_left(), 'd')} s"
    )


def no_progress(num_done: int, num_all: int) -> None:
    """Is an OnProgress that does nothing."""


def reading(show: Callable[[str], object], now: Callable[[], float] = time.monotonic, label: str = "reading the data") -> OnProgress:
    """Returns an OnProgress that calls show(line) once per second, but not in the first seconds."""
    last = now() + SILENT_SECONDS - INTERVAL_SECONDS

    def on_progress(num_done: int, num_all: int) -> None:
        nonlocal last
        if (moment := now()) - last >= INTERVAL_SECONDS:
            last = moment
            show(f"{label}: {num_done / num_all:.0%}")

    return on_progress
