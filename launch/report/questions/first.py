"""Which backend reaches the target first at each size, by seconds per epoch, by how much, and with what uncertainty. Pure."""

from typing import NamedTuple

from common.backends import BASELINE
from launch.report import entries, epochs, factors
from launch.report.entries import Entry
from launch.report.statistics import MIN_RUNS_CONFIDENT, Ratio, present
from launch.report.tables import ACCURACY, BACKEND, INTERVAL, RANKS, RATE, TIME, Column, apart, filled
from launch.report.words import EQUAL, NO_DIFFERENCE, interval, level, listed, ranks_of, runs_against, times_as_fast, uncertainty

QUESTION = "Which backend reaches the target first?"
COLUMNS = (
    RANKS, BACKEND, Column("transport"), TIME, Column("with start-up (s)", ".2f", brief=True),
    Column("epochs", ".1f", brief=True), Column("seconds per epoch", ".3f", brief=True), Column("ratio to fastest", ".2f", brief=True),
    INTERVAL, Column("verdict", brief=True), Column("reached"),
    Column("fastest (s)", ".2f"), Column("slowest (s)", ".2f"), ACCURACY, RATE,
)  # fmt: skip
FASTEST = "fastest"
SLOWER = "slower"
MORE_EPOCHS = "needs more epochs"
APPROXIMATE = "approximate"
SMALLER_BATCH = "smaller global batch"


class Place(NamedTuple):
    """An entry that reached the target, in the order of the answer: exact backends, those that need more epochs, those with a smaller
    global batch, approximate ones.

    `against`: the Ratio of its seconds per epoch to those of the fastest, None for the fastest; `more_epochs`: a MoreEpochs or None.
    `has_smaller_batch`: under weak scaling, ranks that compute one model together get one batch, and data-parallel ones each their own.
    """

    entry: Entry
    against: Ratio | None
    more_epochs: epochs.MoreEpochs | None
    has_smaller_batch: bool = False

    @property
    def is_apart(self):
        """Whether seconds per epoch alone do not show how it compares with the fastest."""
        return bool(self.more_epochs) or self.has_smaller_batch or not self.entry.exact

    @property
    def num_repeats(self):
        """The number of runs, or of pairs, that the verdict is from."""
        return min(self.against.num_above, self.against.num_below) if self.against else len(self.entry.records)

    @property
    def verdict(self):
        """fastest, slower, no difference shown, or why there is no verdict; None for the fastest of too few runs."""
        if not self.entry.exact:
            return APPROXIMATE
        if self.has_smaller_batch:
            return SMALLER_BATCH
        if self.more_epochs:
            return MORE_EPOCHS
        if self.against is None:
            return FASTEST if self.num_repeats >= MIN_RUNS_CONFIDENT else None
        if self.against.verdict is None:
            return f"none from {runs_against(self.against.num_above, self.against.num_below, self.against.paired)}"
        return level(self.against) or SLOWER


def places(candidates):
    """The Places of the entries of one size that reached the target."""
    timed = [entry for entry in candidates if entries.time_of(entry) is not None and entries.epoch_seconds(entry)]
    batch = max((entry.batch_ratio for entry in timed), default=1)
    exact = [entry for entry in timed if entry.exact and entry.batch_ratio == batch]
    needing = {more_epochs.backend: more_epochs for more_epochs in epochs.needing_more(epochs.blocks_of(exact))}
    timed.sort(key=lambda entry: (not entry.exact, entry.batch_ratio < batch, entry.backend in needing, entries.epoch_seconds(entry)))
    return [
        Place(entry, entries.epoch_ratio(entry, timed[0], timed) if number else None, needing.get(entry.backend), entry.batch_ratio < batch)
        for number, entry in enumerate(timed)
    ]


def winner(comparison):
    """The headline of a comparison: which backend, at which size, reached the target first, by either clock."""
    fair = [entry for entry in comparison.entries if not entry.oversubscribed]
    if comparison.target is None:
        return f"{comparison.name}: has no target; it is for throughput alone.{_highest_throughput(fair)}"
    timed = by_time(fair) or by_time(comparison.entries)
    if not timed:
        return f"{comparison.name}: no run reached the target."
    seconds, best = timed[0]
    left_out = ""
    if best.oversubscribed:
        left_out = " (oversubscribed)"
    elif by_time(comparison.entries)[0][0] < seconds:
        left_out = " (oversubscribed entries left out)"
    placed = places(comparison.of_size(best.num_ranks, best.oversubscribed))
    num_repeats = min((place.num_repeats for place in placed), default=1)
    if num_repeats < MIN_RUNS_CONFIDENT:
        lowest = f"; the lowest time so far is {seconds:.2f} s, {best.backend} at {ranks_of(best.num_ranks)}"
        so_far = lowest if len(best.records) > 1 else ""
        if num_repeats == 1 and (in_this_run := _in_this_run([place.entry for place in placed if not place.is_apart])):
            return f"{comparison.name}, {ranks_of(best.num_ranks)}: {in_this_run}{left_out}."
        repeats_give = "one run gives" if num_repeats == 1 else f"{num_repeats} repeats give"
        return f"{comparison.name}: {repeats_give} no verdict, {MIN_RUNS_CONFIDENT} do{so_far}{left_out}."
    first, *later = placed
    at, seconds = ranks_of(best.num_ranks), entries.time_of(first.entry)
    sentence = f"{comparison.name}: {first.entry.backend} at {at} reached the target first, in {seconds:.2f} s{left_out}"
    against = entries.time_ratio(comparison.entry(BASELINE, 1), first.entry) if first.entry.backend != BASELINE else None
    compared = f"; {times_as_fast(against, BASELINE)}" if against else ""
    return f"{sentence}{compared}.{_alike(later)}{_with_startup([place.entry for place in placed])}"


def _alike(later):
    """The sentences on which Places do not differ from the first; empty where all do."""
    backends_of = {verdict: [place.entry.backend for place in later if place.verdict == verdict] for verdict in (EQUAL, NO_DIFFERENCE)}
    return "".join(f" {verdict.capitalize()} from {listed(backends)}." for verdict, backends in backends_of.items() if backends)


def _in_this_run(candidates):
    """What one run tells of the two fastest of a size that took turns, in words; empty where they did not."""
    if len(candidates) < 2 or not (ratio := entries.ratio_of_one_run(*candidates[:2])):
        return ""
    first, second = (entry.backend for entry in candidates[:2])
    compared = f"in this run {first} took {ratio.value:.2f} times {second}'s seconds per epoch ({interval(ratio)})"
    return f"{compared}; {MIN_RUNS_CONFIDENT} repeats would tell whether that lasts"


def _with_startup(candidates):
    """The sentence on which of the entries of a size is first where start-up counts; empty where no matrix launched them."""
    seconds_of = {entry.backend: time for entry in candidates if (time := entries.time_with_startup(entry)) is not None}
    if not seconds_of:
        return ""
    earliest = min(seconds_of, key=seconds_of.get)
    return f" With start-up the lowest time is {seconds_of[earliest]:.2f} s, {earliest}."


def _highest_throughput(candidates):
    rates = [(rate, entry) for entry in candidates if (rate := entries.typical(entry, "samples_per_second")) is not None]
    if not rates:
        return ""
    rate, best = max(rates, key=lambda pair: pair[0])
    return f" Highest throughput: {best.backend} at {ranks_of(best.num_ranks)}, {rate:.0f} samples/s."


def by_time(candidates):
    """[(seconds, entry)] of the entries with a time to solution, the fastest first."""
    return sorted(((time, entry) for entry in candidates if (time := entries.time_of(entry)) is not None), key=lambda pair: pair[0])


def answer(comparison):
    """(sentences, tables) of a comparison; oversubscribed entries have their own tables."""
    sentences, tables = [], []
    for size in comparison.sizes if comparison.target is not None else ():
        if candidates := comparison.of_size(size, oversubscribed=False):
            at, placed = f"{comparison.name}, {ranks_of(size)}", places(candidates)
            sentences += [_sentence(at, placed), *factors.sentences(at, [place.entry for place in placed if not place.is_apart])]
    for title, chosen in apart(comparison.name, comparison.entries):
        rows = [row for size in comparison.sizes for row in _rows([entry for entry in chosen if entry.num_ranks == size])]
        tables += filled(title, COLUMNS, rows)
    return sentences, tables


def _sentence(at, placed):
    if not placed:
        return f"{at}: no backend reached the target."
    best, *later = placed
    seconds = f"{entries.epoch_seconds(best.entry):.3f} s an epoch"
    needing_more = "".join(
        f" {need.backend} needs more epochs to the target: {need.mean:.1f} against {need.mean_of_others:.1f} (p = {need.p_value:.2g})."
        for need in (place.more_epochs for place in placed)
        if need
    )
    later = [place for place in later if not place.is_apart]
    if not later:
        return f"{at}: {best.entry.backend} takes {seconds}; no other backend to compare with reached the target.{needing_more}"
    second = later[0]
    if second.against.verdict is None:
        against = f"{second.entry.backend} {second.against.value:.2f} times that ({uncertainty(second.against)})"
        return f"{at}: {best.entry.backend} takes {seconds}, {against}; a verdict takes {MIN_RUNS_CONFIDENT} repeats.{needing_more}"
    against = times_as_fast(second.against, second.entry.backend)
    return f"{at}: {best.entry.backend} is fastest, {seconds}; {against}.{_alike(later[1:])}{needing_more}"


def _rows(candidates):
    placed = places(candidates)
    without = [entry for entry in candidates if entry not in [place.entry for place in placed]]
    without.sort(key=lambda entry: -(entries.typical(entry, "samples_per_second") or 0))
    return [*(_row(place.entry, place) for place in placed), *(_row(entry) for entry in without)]


def _row(entry, place=None):
    missed = entries.misses(entry)
    reached = present(entries.times(entry))
    numbers = [number for record in entry.records if (number := epochs.to_target(record)) is not None]
    time = entries.time_of(entry)
    return (
        entry.num_ranks,
        entry.backend,
        entry.transport,
        time if time is not None else missed[0] if missed else None,
        entries.time_with_startup(entry),
        sum(numbers) / len(numbers) if numbers else None,
        entries.epoch_seconds(entry),
        (place.against.value if place.against else 1.0) if place else None,
        interval(place.against) if place else None,
        place.verdict if place else None,
        f"{len(reached)}/{len(entry.records)}{f' ({listed(sorted(set(missed)))})' if missed else ''}" if reached or missed else None,
        min(reached, default=None),
        max(reached, default=None),
        entries.typical(entry, "accuracy"),
        entries.typical(entry, "samples_per_second"),
    )
