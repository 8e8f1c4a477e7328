"""The learning rate at each step: scaling with the global batch, gradual warm-up, then constant or cosine."""

import numpy as np

SCHEDULES = ("constant", "cosine")


def learning_rates(base_rate, factor, warmup_epochs, schedule, num_epochs, steps_per_epoch):
    """Rates of a whole run, an array of shape (num_epochs, steps_per_epoch).

    During `warmup_epochs` the rate rises, a little at each step, from `base_rate` to `factor * base_rate`; after them it
    stays there (`constant`) or falls to 0 at the end of the run (`cosine`). The linear scaling rule and the gradual
    warm-up are those of Goyal et al. 2017, arXiv:1706.02677, sections 2.1 and 2.2; the cosine is that of Loshchilov
    and Hutter 2017, arXiv:1608.03983, eq. 5, without restarts.
    """
    started = np.arange(num_epochs * steps_per_epoch).reshape(num_epochs, steps_per_epoch) / steps_per_epoch
    finished = started + 1 / steps_per_epoch
    rates = np.full_like(started, base_rate * factor)
    if schedule == "cosine" and num_epochs > warmup_epochs:
        done = np.clip((started - warmup_epochs) / (num_epochs - warmup_epochs), 0, 1)
        rates *= 0.5 * (1 + np.cos(np.pi * done))
    if warmup_epochs:
        ramp = base_rate * (1 + (factor - 1) * np.minimum(finished / warmup_epochs, 1))
        rates = np.where(started < warmup_epochs, ramp, rates)
    return rates
