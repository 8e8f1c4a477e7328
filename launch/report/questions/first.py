"""Which backend reaches the target first, by time to solution, and which is fastest at each size, by seconds per epoch."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from common.terminal import filled
from common.words import listed, ranks_of
from launch.report import epochs, measures
from launch.report.entries import Comparison, Entry
from launch.report.findings import Cells, Findings
from launch.report.ratio_text import (
    EQUAL,
    NO_DIFFERENCE,
    equality,
    interval,
    runs_against,
    span,
    speed_up_interval,
    times_as_fast,
    uncertainty,
    with_interval,
)
from launch.report.statistics import MARGIN, MIN_RUNS_CONFIDENT, Ratio

QUESTION = "Which backend reaches the target first?"
FASTEST = "fastest"
SLOWER = "slower"
MORE_EPOCHS = "needs more epochs"
APPROXIMATE = "approximate"
SMALLER_BATCH = "smaller global batch"
# The column of the throughput.
RATE = "samples_per_second"


class Result(NamedTuple):
    """What an entry that reached the target is compared by.

    `against` is the ratio of its seconds per epoch to those of the fastest, and `training_against` that of training without evaluation;
    both are None for the fastest itself. `has_smaller_batch`: under weak scaling, ranks that compute one model together get one batch, and
    data-parallel ones each their own.
    """

    entry: Entry
    time_to_solution_seconds: float
    epoch_seconds: float
    against: Ratio | None
    more_epochs: epochs.MoreEpochs | None
    has_smaller_batch: bool = False
    training_against: Ratio | None = None

    @property
    def is_comparable(self) -> bool:
        """Whether seconds per epoch alone show how it compares with the fastest."""
        return self.entry.exact and not self.more_epochs and not self.has_smaller_batch

    @property
    def num_repeats(self) -> int:
        """The number of runs, or of pairs, on which the verdict rests."""
        return min(self.against.num_above, self.against.num_below) if self.against else len(self.entry.records)

    @property
    def verdict(self) -> str | None:
        """Fastest, slower, no difference shown, or the reason why there is no verdict; None for the fastest of too few runs."""
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
        return equality(self.against) or SLOWER


def results_of(candidates: Iterable[Entry]) -> list[Result]:
    """Returns the results of the entries of one size that reached the target, in the order of the answer.

    Exact backends come first, then those that need more epochs, those with a smaller global batch, and approximate ones.
    """
    timed = [
        (entry, time, seconds)
        for entry in candidates
        if (time := measures.time_of(entry)) is not None and (seconds := measures.epoch_seconds(entry))
    ]
    batch = max((entry.batch_ratio for entry, *_ in timed), default=1)
    exact = [entry for entry, *_ in timed if entry.exact and entry.batch_ratio == batch]
    needing = {more_epochs.backend: more_epochs for more_epochs in epochs.needing_more(epochs.blocks_of(exact))}
    results = [Result(entry, time, seconds, None, needing.get(entry.backend), entry.batch_ratio < batch) for entry, time, seconds in timed]
    results.sort(key=lambda result: (not result.entry.exact, result.has_smaller_batch, bool(result.more_epochs), result.epoch_seconds))
    compared = [result.entry for result in results]
    return results[:1] + [
        result._replace(
            against=measures.epoch_ratio(result.entry, compared[0], compared),
            training_against=measures.epoch_ratio(result.entry, compared[0], compared, measures.EPOCH_TRAINING),
        )
        for result in results[1:]
    ]


def comparable(candidates: Iterable[Entry]) -> list[Entry]:
    """Returns the entries of one size that seconds per epoch alone compare, the fastest first."""
    return [result.entry for result in results_of(candidates) if result.is_comparable]


def winner(comparison: Comparison) -> str:
    """Returns the headline of a comparison: which backend, at which size, reached the target first, by either clock."""
    if comparison.target is None:
        with_cores = [entry for entry in comparison.entries if not entry.oversubscribed]
        return f"{comparison.name}: has no target; it is for throughput alone.{_highest_throughput(with_cores)}"
    compared = _compared_by_time(comparison.entries)
    if not compared:
        return f"{comparison.name}: no run reached the target."
    seconds, best = compared[0]
    faster = [entry for time, entry in by_time(comparison.entries) if time < seconds]
    left_out = _in_brackets([best], "") or _in_brackets(faster, " entries left out")
    results = results_of(comparison.of_size(best.num_ranks, best.oversubscribed))
    num_repeats = min((result.num_repeats for result in results), default=1)
    if num_repeats < MIN_RUNS_CONFIDENT:
        lowest = f"; the lowest time so far is {seconds:.2f} s, {best.backend} at {ranks_of(best.num_ranks)}"
        so_far = lowest if len(best.records) > 1 else ""
        repeats_give = "one run gives" if num_repeats == 1 else f"{num_repeats} repeats give"
        return f"{comparison.name}: {repeats_give} no verdict, {MIN_RUNS_CONFIDENT} do{so_far}{left_out}."
    fastest = results[0].entry.backend
    by_epochs = "" if fastest == best.backend else f" By seconds per epoch {fastest} is {FASTEST}."
    with_startup = _with_startup([result.entry for result in results])
    return f"{comparison.name}: {_first_by_time(comparison, best, left_out)}{by_epochs}{with_startup}"


def _first_by_time(comparison: Comparison, best: Entry, left_out: str) -> str:
    """Returns the sentences on the entry that reached the target first: by how much before the next one, and over plain training."""
    parts = [f"{best.backend} at {ranks_of(best.num_ranks)} reached the target first, in {measures.time_of(best):.2f} s{left_out}"]
    ratio_of = time_ratios(comparison.of_size(best.num_ranks, best.oversubscribed))
    next_backend = next(iter(ratio_of), None)
    if next_backend:
        parts.append(times_as_fast(ratio_of.pop(next_backend), next_backend))
    plain = comparison.plain_entry(best.backend)
    if plain and plain.backend != next_backend and (speed_up := measures.time_ratio(plain, best)):
        parts.append(times_as_fast(speed_up, plain.backend, speed_up_interval))
    return f"{'; '.join(parts)}.{_not_differing(ratio_of)}"


def _compared_by_time(all_entries: Iterable[Entry]) -> list[tuple[float, Entry]]:
    """Returns the entries with a time to solution that are compared by it, each after its seconds, the fastest first.

    These are the exact ones with cores of their own, without any the approximate ones, and without these the oversubscribed ones.
    """
    timed = by_time(all_entries)
    kinds = [(entry.oversubscribed, not entry.exact) for _, entry in timed]
    return [pair for pair, kind in zip(timed, kinds, strict=True) if kind == min(kinds)]


def _in_brackets(chosen: Sequence[Entry], suffix: str) -> str:
    """Returns in which ways the chosen entries are not compared by time; empty where they are."""
    of_kind = {"oversubscribed": attrgetter("oversubscribed"), APPROXIMATE: lambda entry: not entry.exact}
    kinds = [kind for kind, is_of_kind in of_kind.items() if any(map(is_of_kind, chosen))]
    return f" ({listed(kinds)}{suffix})" if kinds else ""


def time_ratios(candidates: Iterable[Entry]) -> dict[str, Ratio]:
    """Returns the ratios of the times to solution of those entries of a size that they compare to the lowest, by backend, the lowest first.

    The entry that has the lowest is left out. The intervals are simultaneous.
    """
    timed = [entry for _, entry in _compared_by_time(candidates)]
    return {entry.backend: ratio for entry in timed[1:] if (ratio := measures.time_ratio(entry, timed[0], timed))}


def _not_differing(ratio_of: Mapping[str, Ratio]) -> str:
    """Returns the sentences on which backends do not differ from the first; empty where all do."""
    backends_of = {
        text: [backend for backend, ratio in ratio_of.items() if ratio.verdict is False and equality(ratio) == text]
        for text in (EQUAL, NO_DIFFERENCE)
    }
    return "".join(f" {text.capitalize()} from {listed(backends)}." for text, backends in backends_of.items() if backends)


def _with_startup(candidates: Iterable[Entry]) -> str:
    """Returns the sentence on which of the entries of a size is first where start-up counts; empty where no matrix launched them."""
    seconds_of = {entry.backend: time for entry in candidates if (time := measures.time_of(entry, measures.TIME_WITH_STARTUP)) is not None}
    if not seconds_of:
        return ""
    earliest = min(seconds_of, key=lambda backend: seconds_of[backend])
    return f" With start-up the lowest time is {seconds_of[earliest]:.2f} s, {earliest}."


def _highest_throughput(candidates: Iterable[Entry]) -> str:
    rates = [(rate, entry) for entry in candidates if (rate := entry.trimmed_mean(RATE)) is not None]
    if not rates:
        return ""
    rate, best = max(rates, key=lambda pair: pair[0])
    return f" Highest throughput: {best.backend} at {ranks_of(best.num_ranks)}, {rate:.0f} samples/s."


def by_time(candidates: Iterable[Entry]) -> list[tuple[float, Entry]]:
    """Returns the entries with a time to solution, each after its seconds, the fastest first."""
    return sorted(((time, entry) for entry in candidates if (time := measures.time_of(entry)) is not None), key=lambda pair: pair[0])


def answer(comparison: Comparison) -> Findings:
    """Answers for a comparison: at its largest size in a sentence, at the others in details.

    Oversubscribed entries are compared with each other alone, and are in no sentence.
    """
    sentences = [winner(comparison)] if comparison.target is None else []
    for size in comparison.sizes if comparison.target is not None else ():
        if candidates := comparison.of_size(size, oversubscribed=False):
            sentences.append(_sentence(f"{comparison.name}, {ranks_of(size)}", results_of(candidates)))
    groups = [comparison.of_size(size, oversubscribed) for oversubscribed in (False, True) for size in comparison.sizes]
    rows = [row for candidates in groups for row in _rows(candidates, comparison.metric)]
    return Findings(sentences[-1:], filled(comparison.name, rows), sentences[:-1])


def _sentence(at: str, results: Sequence[Result]) -> str:
    if not results:
        return f"{at}: no backend reached the target."
    best, *later = results
    seconds = f"{best.epoch_seconds:.3f} s an epoch"
    needing_more = "".join(
        f" {need.backend} needs more epochs to the target: {need.mean:.1f} against {need.mean_of_others:.1f} (p = {need.p_value:.2g})."
        for need in (result.more_epochs for result in results)
        if need
    )
    compared = [(result, result.against) for result in later if result.against and result.is_comparable]
    if not compared:
        return f"{at}: {best.entry.backend} takes {seconds}; no other backend to compare with reached the target.{needing_more}"
    (second, ratio), *_ = compared
    if ratio.verdict is None:
        against = f"{second.entry.backend} {ratio.value:.2f} times that ({uncertainty(ratio)})"
        return f"{at}: {best.entry.backend} takes {seconds}, {against}; a verdict takes {MIN_RUNS_CONFIDENT} repeats.{needing_more}"
    against = times_as_fast(ratio, second.entry.backend)
    not_differing = _not_differing({result.entry.backend: ratio for result, ratio in compared[1:]})
    evaluation = _evaluation([best.entry, *(result.entry for result, _ in compared)])
    alone = f"; in training alone {with_interval(second.training_against)} times" if evaluation else ""
    return f"{at}: {best.entry.backend} is fastest, {seconds}; {against}{alone}.{not_differing}{evaluation}{needing_more}"


def _evaluation(candidates: Iterable[Entry]) -> str:
    """Returns the sentence on how much of an epoch is evaluation; empty where it is too little to matter for the choice of a backend."""
    percents = {entry.backend: 100 * share for entry in candidates if (share := entry.trimmed_mean("evaluation_share"))}
    return f" Evaluation is {span(percents, '{:.0f} %')} of an epoch." if max(percents.values(), default=0.0) > 100 * MARGIN else ""


def _rows(candidates: Sequence[Entry], metric: str) -> list[Cells]:
    """Returns the rows of the entries of one size: those that reached the target, then the others by throughput."""
    results = results_of(candidates)
    without = [entry for entry in candidates if entry not in [result.entry for result in results]]
    without.sort(key=lambda entry: -(entry.trimmed_mean(RATE) or 0))
    time_ratio_of = time_ratios(candidates)
    in_order = [*((result.entry, result) for result in results), *((entry, None) for entry in without)]
    return [_row(entry, result, time_ratio_of.get(entry.backend), metric) for entry, result in in_order]


def _row(entry: Entry, result: Result | None, time_ratio: Ratio | None, metric: str) -> Cells:
    time, times, misses = measures.time_of(entry), entry.values(measures.TIME).values(), measures.misses(entry)
    ratio, training_ratio = (result.against, result.training_against) if result else (None, None)
    reasons = f" ({listed(sorted(set(misses)))})" if misses else ""
    return entry.cells | {
        "transport": entry.transport,
        "time to solution (s)": next(iter(misses), None) if time is None else time,
        "over lowest time": with_interval(time_ratio),
        "with start-up (s)": measures.time_of(entry, measures.TIME_WITH_STARTUP),
        "epochs": entry.mean("epochs_to_target"),
        "seconds per epoch": measures.epoch_seconds(entry),
        "ratio to fastest": (ratio.value if ratio else 1.0) if result else None,
        "95 % interval": interval(ratio),
        "ratio of training alone": with_interval(training_ratio),
        "verdict": result and result.verdict,
        "reached": f"{len(times)}/{len(entry.records)}{reasons}" if times or misses else None,
        "fastest (s)": min(times, default=None),
        "slowest (s)": max(times, default=None),
        metric: entry.trimmed_mean("accuracy"),
        "samples/s": entry.trimmed_mean(RATE),
    }
