"""What is measured of entries: times to solution, seconds per epoch and other values, and the ratios of two entries in these."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from common.record.definition import Record
from launch.report import epochs, statistics
from launch.report.entries import Entry, Key, key_of
from launch.report.statistics import Noise, Ratio

NOT_REACHED = "not reached"
# A function of launch/report/epochs.py: the seconds per epoch of a run, or of its first epochs.
SecondsPerEpoch = Callable[..., float | None]


def times(entry: Entry) -> list[float | None]:
    """Returns the time to solution of each run in seconds; None where it missed the target, failed, or was resumed from a checkpoint."""
    return [record.time_to_solution_seconds if record.status == "ok" else None for record in entry.records]


def scored_times(entry: Entry | None) -> list[float] | None:
    """Returns the times of an entry as statistics.scored gives them; None for a missing or invalid entry."""
    return statistics.scored(times(entry)) if entry else None


def misses(entry: Entry) -> list[str]:
    """Returns the status of each run without a time to solution; nothing for workloads without a target."""
    return [
        record.status if record.status != "ok" else "resumed" if record.reached else NOT_REACHED
        for record, time in zip(entry.records, times(entry), strict=True)
        if time is None and (record.status != "ok" or record.reached is not None)
    ]


def time_of(entry: Entry | None) -> float | None:
    """Returns the entry's time to solution in seconds; None for a missing or invalid entry."""
    return statistics.trimmed_mean(scored_times(entry) or ())


def time_with_startup(entry: Entry) -> float | None:
    """Returns the seconds from the start of the launcher to the target; None where they are not known, as outside a matrix.

    Repeats are scored as in `time_of`.
    """
    startup = (statistics.complete((record.launch_seconds, record.import_seconds, record.init_seconds)) for record in entry.records)
    seconds = [None if time is None or not stages else time + sum(stages) for time, stages in zip(times(entry), startup, strict=True)]
    return statistics.trimmed_mean(statistics.scored(seconds) or ())


def time_ratio(above: Entry | None, below: Entry | None) -> Ratio | None:
    """Returns the ratio of the times to solution of two entries; None where either has no time."""
    times_above, times_below = scored_times(above), scored_times(below)
    if not above or not below or not times_above or not times_below:
        return None
    return statistics.ratio(times_above, times_below, paired=_are_pairs(above.records, below.records))


def epoch_seconds(entry: Entry) -> float | None:
    """Returns the geometric mean of the seconds per epoch of an entry's runs; None without any."""
    by_run = statistics.present(map(epochs.seconds, entry.from_start))
    return statistics.geometric_mean(by_run) if by_run else None


def epoch_ratio(above: Entry, below: Entry, compared: Sequence[Entry], seconds_of: SecondsPerEpoch = epochs.seconds) -> Ratio | None:
    """Returns the ratio of the seconds per epoch of two of the entries `compared`; None where either has none.

    With `epochs.training_seconds` for `seconds_of` evaluation does not count. The interval is simultaneous for all pairs of these entries,
    which together show how much their repeats vary.
    Runs with the same key are pairs, and where there are several pairs only they count. Of a pair the epochs count that both have trained:
    of runs side by side these had their turns one after the other.
    """
    records_above, records_below = (
        {key_of(record): record for record in entry.from_start if seconds_of(record)} for entry in (above, below)
    )
    shared = [key for key in records_above if key in records_below]
    if len(shared) > 1:
        pairs = [(records_above[key], records_below[key]) for key in shared]
        num_epochs = [min(len(record.train_seconds) for record in pair) for pair in pairs]
        seconds_above, seconds_below = (
            statistics.present(seconds_of(pair[side], num) for pair, num in zip(pairs, num_epochs, strict=True)) for side in (0, 1)
        )
    else:
        seconds_above, seconds_below = (statistics.present(map(seconds_of, records.values())) for records in (records_above, records_below))
    if not seconds_above or not seconds_below:
        return None
    paired = len(shared) > 1 or (len(shared) == 1 and len(seconds_above) == len(seconds_below) == 1)
    repeat_noise = _repeat_noise(shared, (above, below), compared, seconds_of) if len(shared) > 1 else None
    session_noise = _session_noise(sorted({key.matrix for key in shared}), (above, below), compared, seconds_of)
    return statistics.simultaneous_ratio(seconds_above, seconds_below, paired, len(compared), repeat_noise, session_noise)


def ratio_of_products(pairs: Sequence[tuple[Entry, Entry]], power: float, compared: Sequence[Entry]) -> Ratio | None:
    """Returns the ratio of two products of seconds per epoch, each to the power: of the first entries of the pairs to that of the second.

    Only keys that all entries have count; without any the ratio is None. The entries are among those `compared`, which show the noise
    from matrix to matrix.
    """
    sides = [[epoch_seconds_by_key(entry) for entry in side] for side in zip(*pairs, strict=True)]
    shared = [key for key in sides[0][0] if all(key in seconds for side in sides for seconds in side)]
    if not shared:
        return None
    above, below = (_product(side, shared) ** power for side in sides)
    noise = _session_noise(sorted({key.matrix for key in shared}), [entry for pair in pairs for entry in pair], compared)
    noise = noise and noise._replace(variance=power**2 * noise.variance)
    return statistics.simultaneous_ratio(above.tolist(), below.tolist(), paired=True, num_compared=2, session_noise=noise)


def _product(factors: Iterable[Mapping[Key, float]], keys: Sequence[Key]) -> np.ndarray:
    """Returns the product of the factors at each of the keys."""
    return np.prod([[seconds[key] for key in keys] for seconds in factors], axis=0)


def epoch_seconds_by_key(entry: Entry, seconds_of: SecondsPerEpoch = epochs.seconds) -> dict[Key, float]:
    """Returns the seconds per epoch of an entry's runs."""
    return {key_of(record): seconds for record in entry.from_start if (seconds := seconds_of(record))}


def ratio_of_one_run(above: Entry, below: Entry) -> Ratio | None:
    """Returns the ratio of two entries with one run each, which took turns side by side; None for any others."""
    if not len(above.records) == len(below.records) == 1 or key_of(above.records[0]) != key_of(below.records[0]):
        return None
    sides = [epochs.seconds_by_turn(entry.records[0]) for entry in (above, below)]
    num_rounds = min(map(len, sides))
    return statistics.ratio_of_one_run(*(side[:num_rounds] for side in sides))


def _repeat_noise(keys: Sequence[Key], sides: Sequence[Entry], compared: Iterable[Entry], seconds_of: SecondsPerEpoch) -> Noise:
    """Returns the noise from repeat to repeat of the ratio of two entries that have runs with these keys.

    It is known from these and the other entries compared that have all the keys.
    """
    by_entry = [epoch_seconds_by_key(entry, seconds_of) for entry in (*sides, *(entry for entry in compared if entry not in sides))]
    logarithms = [[math.log(seconds[key]) for key in keys] for seconds in by_entry if seconds.keys() >= set(keys)]
    return statistics.repeat_noise(np.transpose(logarithms))


def _session_noise(
    matrices: Sequence[str], factors: Iterable[Entry], compared: Iterable[Entry], seconds_of: SecondsPerEpoch = epochs.seconds
) -> Noise | None:
    """Returns the noise from matrix to matrix of a ratio whose numerator and denominator have these factors; None where it is not known.

    It is known from the entries compared, among them the factors, that have runs in each of the matrices.
    """
    logarithms: dict[str, list[float]] = {}
    for entry in compared:
        by_matrix: dict[str, list[float]] = {}
        for key, seconds in epoch_seconds_by_key(entry, seconds_of).items():
            by_matrix.setdefault(key.matrix, []).append(math.log(seconds))
        if by_matrix.keys() >= set(matrices):
            logarithms[entry.backend] = [float(np.mean(by_matrix[matrix])) for matrix in matrices]
    noises = statistics.session_noises(np.transpose(list(logarithms.values()))) if len(logarithms) > 1 else []
    noise_of = dict(zip(logarithms, noises, strict=False))
    return statistics.summed([noise_of[entry.backend] for entry in factors]) if noise_of else None


def value_ratio(above: Entry | None, below: Entry | None, value_of: Callable[[Record], float | None]) -> Ratio | None:
    """Returns the ratio of a value of the completed runs of two entries; None where either has no value."""
    values = run_values(above, below, value_of)
    return values and statistics.ratio(*values)


def run_values(
    above: Entry | None, below: Entry | None, value_of: Callable[[Record], float | None]
) -> tuple[list[float], list[float], bool] | None:
    """Returns the values of the completed runs of two entries and whether they are pairs; None where either has no value."""
    records_above, records_below = (
        [record for record in entry.ok if value_of(record) is not None] if entry else [] for entry in (above, below)
    )
    if not records_above or not records_below:
        return None
    values_above, values_below = (statistics.present(map(value_of, records)) for records in (records_above, records_below))
    return values_above, values_below, _are_pairs(records_above, records_below)


def _are_pairs(above: Iterable[Record], below: Iterable[Record]) -> bool:
    keys = [key_of(record) for record in above]
    return len(set(keys)) == len(keys) and keys == [key_of(record) for record in below]
