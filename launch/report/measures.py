"""What is measured of entries: times to solution, seconds per epoch and other values, and the ratios of two entries in these."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from common.record.definition import Record
from launch.report import epochs, statistics
from launch.report.entries import Entry, Key, key_of
from launch.report.statistics import Ratio

NOT_REACHED = "not reached"
# The value of each run.
Values = Mapping[Key, float]
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


def time_ratio(above: Entry | None, below: Entry | None, compared: Sequence[Entry] = ()) -> Ratio | None:
    """Returns the ratio of the times to solution of two entries; None where either has no time.

    The interval is simultaneous for all pairs of the entries `compared`, and without any for this ratio alone.
    """
    others = [_times_by_key(entry) for entry in compared if entry not in (above, below)]
    return _trimmed_ratio(_times_by_key(above), _times_by_key(below), others, _num_pairs(compared))


def _times_by_key(entry: Entry | None) -> dict[Key, float]:
    times_of_runs = scored_times(entry)
    return dict(zip(map(key_of, entry.records), times_of_runs, strict=True)) if entry and times_of_runs else {}


def value_ratio(above: Entry | None, below: Entry | None, value_of: Callable[[Record], float | None]) -> Ratio | None:
    """Returns the ratio of a value of the completed runs of two entries; None where either has no value."""
    return _trimmed_ratio(values_by_key(above, value_of), values_by_key(below, value_of))


def values_by_key(entry: Entry | None, value_of: Callable[[Record], float | None]) -> dict[Key, float]:
    """Returns a value of an entry's completed runs."""
    return {key_of(record): value for record in (entry.ok if entry else ()) if (value := value_of(record)) is not None}


def _trimmed_ratio(above: Values, below: Values, others: Iterable[Values] = (), num_pairs: int = 1) -> Ratio | None:
    """Returns the ratio of the trimmed means of the values of two entries, as `_ratio` does."""
    means = [statistics.trimmed_mean(values.values()) for values in (above, below)]
    if means[0] is None or means[1] is None:
        return None
    return _ratio(above, below, others, num_pairs, means[0] / (means[1] or statistics.SMALLEST))


def _num_pairs(compared: Sequence[Entry]) -> int:
    return max(math.comb(len(compared), 2), 1)


def _ratio(above: Values, below: Values, others: Iterable[Values], num_pairs: int, value: float | None = None) -> Ratio:
    """Returns statistics.ratio of the values of two entries, which are pairs where they have the same keys.

    Of the values of other entries those count that have all of these keys.
    """
    values_above, values_below, paired = sides(above, below)
    of_others = [[values[key] for key in above] for values in others if values.keys() >= above.keys()] if paired else []
    return statistics.ratio(values_above, values_below, paired, of_others, num_pairs, value)


def sides(above: Values, below: Values) -> tuple[list[float], list[float], bool]:
    """Returns the values of two entries, in the same order if they have the same keys, and whether they have."""
    paired = above.keys() == below.keys()
    return list(above.values()), [below[key] for key in (above if paired else below)], paired


def epoch_seconds(entry: Entry) -> float | None:
    """Returns the geometric mean of the seconds per epoch of an entry's runs; None without any."""
    by_run = statistics.present(map(epochs.seconds, entry.from_start))
    return statistics.geometric_mean(by_run) if by_run else None


def epoch_seconds_by_key(entry: Entry, seconds_of: SecondsPerEpoch = epochs.seconds) -> dict[Key, float]:
    """Returns the seconds per epoch of an entry's runs."""
    return {key_of(record): seconds for record in entry.from_start if (seconds := seconds_of(record))}


def epoch_ratio(above: Entry, below: Entry, compared: Sequence[Entry], seconds_of: SecondsPerEpoch = epochs.seconds) -> Ratio | None:
    """Returns the ratio of the seconds per epoch of two of the entries `compared`; None where either has none.

    With `epochs.training_seconds` for `seconds_of` evaluation does not count. The interval is simultaneous for all pairs of these entries.
    Where there are several pairs of runs, only they count, and of a pair the epochs that both have trained: of runs side by side these had
    their turns one after the other.
    """
    records_above, records_below = (
        {key_of(record): record for record in entry.from_start if seconds_of(record)} for entry in (above, below)
    )
    shared = [key for key in records_above if key in records_below]
    if len(shared) > 1:
        num_epochs = {key: min(len(records[key].train_seconds) for records in (records_above, records_below)) for key in shared}
        seconds_above, seconds_below = (
            {key: seconds for key in shared if (seconds := seconds_of(records[key], num_epochs[key]))}
            for records in (records_above, records_below)
        )
    else:
        seconds_above, seconds_below = epoch_seconds_by_key(above, seconds_of), epoch_seconds_by_key(below, seconds_of)
    if not seconds_above or not seconds_below:
        return None
    others = [epoch_seconds_by_key(entry, seconds_of) for entry in compared if entry not in (above, below)]
    return _ratio(seconds_above, seconds_below, others, _num_pairs(compared))


def ratio_of_products(pairs: Sequence[tuple[Entry, Entry]], power: float) -> Ratio | None:
    """Returns the ratio of two products of seconds per epoch, each to the power: of the first entries of the pairs to that of the second.

    Only keys that all entries have count; without any the ratio is None. The interval is for this ratio alone.
    """
    by_entry = [[epoch_seconds_by_key(entry) for entry in side] for side in zip(*pairs, strict=True)]
    shared = [key for key in by_entry[0][0] if all(key in seconds for side in by_entry for seconds in side)]
    if not shared:
        return None
    above, below = (np.prod([[seconds[key] for key in shared] for seconds in side], axis=0) ** power for side in by_entry)
    return statistics.ratio(above.tolist(), below.tolist(), paired=True)
