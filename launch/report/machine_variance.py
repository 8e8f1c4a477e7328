"""An effect that differs from machine to machine: how much of its variance is the machine's, and what a machine not measured would show."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from launch.report.statistics import CONFIDENCE

# The values of an effect, one for each repeat, by machine and session.
Values = Mapping[str, Mapping[str, Sequence[float]]]
# With two machines the spread has one degree of freedom, from which no interval is of use.
MIN_MACHINES_CONFIDENT = 3


class Components(NamedTuple):
    """The variances of an effect from machine to machine, from session to session on a machine, and from repeat to repeat in a session.

    `session` is None where no machine has two sessions. The session's variance is then part of the machine's.
    """

    machine: float
    session: float | None
    repeat: float

    @property
    def machine_share(self) -> float | None:
        """The machine's share of the variance of a single repeat; None where nothing varies."""
        total = self.machine + (self.session or 0.0) + self.repeat
        return self.machine / total if total else None


def components(values: Values) -> Components | None:
    """Returns the components of variance of an effect; None with fewer than two machines, or without repeats.

    Machine, session and repeat are nested random effects. Each mean square is set equal to its expectation, and a negative variance
    becomes 0: the analysis of variance of unbalanced data (Henderson's method 1; Searle, Casella and McCulloch, Variance Components,
    1992).
    """
    by_machine = [[np.asarray(repeats, float) for repeats in sessions.values()] for sessions in values.values()]
    sessions = [session for machine in by_machine for session in machine]
    pooled = [np.concatenate(machine) for machine in by_machine]
    num_repeats, num_sessions, num_machines = sum(map(len, sessions)), len(sessions), len(pooled)
    if num_machines < 2 or num_repeats == num_sessions:
        return None
    grand_mean = np.concatenate(pooled).mean()
    squares_of_repeats = sum(float(((session - session.mean()) ** 2).sum()) for session in sessions)
    squares_of_sessions = sum(
        len(session) * float((session.mean() - machine.mean()) ** 2)
        for machine, its_sessions in zip(pooled, by_machine, strict=True) for session in its_sessions
    )  # fmt: skip
    squares_of_machines = sum(len(machine) * float((machine.mean() - grand_mean) ** 2) for machine in pooled)
    # These are the coefficients of the session's and the machine's variance in the expected sums of squares.
    within_machines = sum(
        len(session) ** 2 / len(machine) for machine, its_sessions in zip(pooled, by_machine, strict=True) for session in its_sessions
    )
    within_all = sum(len(session) ** 2 for session in sessions) / num_repeats
    repeat = squares_of_repeats / (num_repeats - num_sessions)
    session = None
    if num_sessions > num_machines:
        excess = squares_of_sessions - (num_sessions - num_machines) * repeat
        session = max(0.0, excess / (num_repeats - within_machines))
    excess = squares_of_machines - (num_machines - 1) * repeat - (within_machines - within_all) * (session or 0.0)
    machine = max(0.0, excess / (num_repeats - sum(len(machine) ** 2 for machine in pooled) / num_repeats))
    return Components(machine, session, repeat)


def means(values: Values) -> dict[str, float]:
    """Returns the mean of an effect on each machine, in which every session has the same weight."""
    return {machine: float(np.mean([np.mean(repeats) for repeats in sessions.values()])) for machine, sessions in values.items()}


def noise_variance(values: Values, parts: Components) -> float:
    """Returns the variance of a machine's mean that sessions and repeats cause, on average over the machines."""
    return float(
        np.mean([(parts.session or 0.0) / len(sessions) + parts.repeat / sum(map(len, sessions.values())) for sessions in values.values()])
    )


def prediction(measured: Sequence[float], noise: float = 0.0) -> tuple[float, float] | None:
    """Returns the 95 % prediction interval of the mean on a machine not measured, from the means on others; None with fewer than two.

    It is Student's interval of a further value of a normal sample (Hahn and Meeker, Statistical Intervals, 1991, section 4.7), and holds
    for a machine that is measured as these were and drawn as they were. The variance is at least that of the noise, since the means of
    few machines may be equal by chance.
    """
    if len(measured) < 2:
        return None
    # scipy.stats is slow to import, and most programs do not need it.
    from scipy.stats import t

    sample = np.asarray(measured, float)
    variance = max(float(sample.var(ddof=1)), noise)
    reach = float(t.ppf((1 + CONFIDENCE) / 2, len(sample) - 1)) * (variance * (1 + 1 / len(sample))) ** 0.5
    return float(sample.mean()) - reach, float(sample.mean()) + reach


def num_predicted(measured: Sequence[float], noise: float = 0.0) -> int | None:
    """Returns how many of the values are in the interval that the others predict; None with fewer than three values."""
    if len(measured) < MIN_MACHINES_CONFIDENT:
        return None
    intervals = [prediction([*measured[:index], *measured[index + 1 :]], noise) for index in range(len(measured))]
    return sum(interval is not None and interval[0] <= value <= interval[1] for value, interval in zip(measured, intervals, strict=True))
