"""Learning rate schedules: linear scaling with gradual warm-up, then one of SCHEDULES."""

from collections.abc import Callable

import numpy as np

CONSTANT = "constant"
# Each gives the factor of the learning rate by the progress of the epochs after warm-up, from 0 to 1.
SCHEDULES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    CONSTANT: np.ones_like,
    "cosine": lambda progress: 0.5 * (1 + np.cos(np.pi * progress)),
}


def learning_rates(base: float, factor: float, warmup_epochs: float, schedule: str, num_epochs: int, steps_per_epoch: int) -> np.ndarray:
    """Returns the learning rate of every step of a run, of shape (num_epochs, steps_per_epoch).

    The learning rate rises linearly from `base` to `factor * base` during `warmup_epochs`. After that it stays there (`constant`)
    or falls to 0 at the end of the run (`cosine`). Linear scaling and gradual warm-up: Goyal et al. 2017,
    arXiv:1706.02677, sections 2.1 and 2.2. Cosine: Loshchilov and Hutter 2017, arXiv:1608.03983, eq. 5, without restarts.
    """
    started = np.arange(num_epochs * steps_per_epoch).reshape(num_epochs, steps_per_epoch) / steps_per_epoch
    finished = started + 1 / steps_per_epoch
    scheduled = np.full_like(started, base * factor)
    if num_epochs > warmup_epochs:
        scheduled *= SCHEDULES[schedule](np.clip((started - warmup_epochs) / (num_epochs - warmup_epochs), 0, 1))
    if warmup_epochs:
        ramp = base * (1 + (factor - 1) * np.minimum(finished / warmup_epochs, 1))
        scheduled = np.where(started < warmup_epochs, ramp, scheduled)
    return scheduled
