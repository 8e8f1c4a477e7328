"""How far a run is, as rank 0 shows it."""

import math
from typing import NamedTuple

from common.metric import Metric


class Progress(NamedTuple):
    """How far a run is. `loss` is that of rank 0, `accuracy` the `metric` of the last evaluation; None before there is one."""

    epoch: int
    num_epochs: int
    step: int
    num_steps: int
    loss: float | None
    accuracy: float | None
    elapsed_seconds: float
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
