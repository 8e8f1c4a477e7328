"""What is measured of entries, and the ratios of two entries in it, over the repeats that form pairs."""

import math
from collections.abc import Mapping, Sequence

from launch.report import statistics, table
from launch.report.entries import Entry, Key, key_of
from launch.report.statistics import Ratio

NOT_REACHED = "not reached"
# The columns of the table with the time to solution, and with that from the start of the launcher on.
TIME, TIME_WITH_STARTUP = "valid_time_seconds", "valid_time_with_startup_seconds"
# That with the seconds per epoch.
EPOCH = "epoch_seconds"
# The value of each run.
Values = Mapping[Key, float]


def scored_times(entry: Entry | None, column: str = TIME) -> dict[Key, float]:
    """Returns the times of all runs of an entry as statistics.scored gives them; nothing for a missing or invalid entry."""
    if entry is None:
        return {}
    keys, times = list(map(key_of, entry.records)), entry.values(column)
    scored = statistics.scored([times.get(key) for key in keys])
    return dict(zip(keys, scored, strict=True)) if scored else {}


def time_of(entry: Entry | None, column: str = TIME) -> float | None:
    """Returns an entry's time to solution in seconds, or that of another column; None for a missing or invalid entry."""
    return statistics.trimmed_mean(scored_times(entry, column).values())


def misses(entry: Entry) -> list[str]:
    """Returns the status of each run without a time to solution; nothing for workloads without a target."""
    return [
        record.status if record.status != "ok" else "resumed" if record.reached else NOT_REACHED
        for record in entry.records
        if table.valid_time_seconds(record) is None and (record.status != "ok" or record.reached is not None)
    ]


def time_ratio(above: Entry | None, below: Entry | None) -> Ratio | None:
    """Returns the ratio of the times to solution of two entries; None where either has no time."""
    return _trimmed_ratio(scored_times(above), scored_times(below))


def value_ratio(above: Entry | None, below: Entry | None, column: str) -> Ratio | None:
    """Returns the ratio of a column of the completed runs of two entries; None where either has no value."""
    return _trimmed_ratio(above.values(column), below.values(column)) if above and below else None


def _trimmed_ratio(above: Values, below: Values) -> Ratio | None:
    """Returns the ratio of the trimmed means of the values of two entries; its interval holds for this ratio alone."""
    means = [statistics.trimmed_mean(values.values()) for values in (above, below)]
    if means[0] is None or means[1] is None:
        return None
    return statistics.ratio(*sides(above, below), value=means[0] / (means[1] or statistics.SMALLEST))


def num_pairs_of(compared: Sequence[Entry]) -> int:
    """Returns how many pairs the entries form that are compared with each other."""
    return max(math.comb(len(compared), 2), 1)


def sides(above: Values, below: Values) -> tuple[list[float], list[float], bool]:
    """Returns the values of two entries, in the same order if they have the same keys, and whether they have."""
    paired = above.keys() == below.keys()
    return list(above.values()), [below[key] for key in (above if paired else below)], paired


def epoch_seconds(entry: Entry) -> float | None:
    """Returns the geometric mean of the seconds per epoch of an entry's runs; None without any."""
    by_run = entry.values(EPOCH)
    return statistics.geometric_mean(list(by_run.values())) if by_run else None


def epoch_ratio(above: Entry, below: Entry, compared: Sequence[Entry], num_pairs: int | None = None) -> Ratio | None:
    """Returns the ratio of the seconds per epoch of two of the entries `compared`; None where either has none.

    The interval is simultaneous for all pairs of these entries, or for `num_pairs` pairs. Where there are several pairs of runs, only they
    count, and of a pair the epochs that both have trained: of runs side by side these had their turns one after the other.
    """
    seconds_above, seconds_below = above.values(EPOCH), below.values(EPOCH)
    shared = [key for key in seconds_above if key in seconds_below]
    if len(shared) > 1:
        records_above, records_below = ({key_of(record): record for record in entry.ok} for entry in (above, below))
        num_epochs = {key: min(len(records_above[key].train_seconds), len(records_below[key].train_seconds)) for key in shared}
        seconds_above, seconds_below = (
            {key: seconds for key in shared if (seconds := table.epoch_seconds(records[key], num_epochs[key])) is not None}
            for records in (records_above, records_below)
        )
    if not seconds_above or not seconds_below:
        return None
    values_above, values_below, paired = sides(seconds_above, seconds_below)
    others = [entry.values(EPOCH) for entry in compared if paired and entry not in (above, below)]
    # Of the others those count that ran in all of these repeats.
    aligned = [[values[key] for key in seconds_above] for values in others if values.keys() >= seconds_above.keys()]
    return statistics.ratio(values_above, values_below, paired, aligned, num_pairs or num_pairs_of(compared))
