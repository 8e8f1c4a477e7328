"""Whether leaving Horovod for what trains the same in the same framework costs or gains: time, memory, start-up and code."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from common.backends import declaration_of, file_of
from common.declarations import ALONE
from common.words import listed, ranks_of
from launch.report import measures, statistics
from launch.report.entries import Entry
from launch.report.findings import NOT_MEASURED, Findings
from launch.report.questions import cost, difference, first
from launch.report.questions.difference import Factors
from launch.report.ratio_text import equality, interval, runs_against
from launch.report.runs import Runs
from launch.report.statistics import MIN_RUNS_CONFIDENT, Ratio

LIBRARY = "Horovod"
QUESTION = f"Should I leave {LIBRARY}?"
STAYING = (
    f"What staying costs: {LIBRARY} builds with current frameworks only when its source is changed, its elastic driver has a "
    "vulnerability, and under Keras 3 its optimizer never all-reduces (frameworks/HOROVOD.md)."
)


class Move(NamedTuple):
    """A backend of Horovod, one of the same framework without it, and the ratio of the latter's seconds per epoch to the former's.

    `name` is the latter without its transport. Both have the same transport where both ran over one.
    """

    framework: str
    name: str
    horovod: Entry
    alternative: Entry
    ratio: Ratio


def answer(runs: Runs) -> Findings:
    """Answers for the backends of comparisons that train the same on cores of their own, at each size with an exchange."""
    texts: list[str] = []
    all_moves: list[Move] = []
    frameworks: set[str] = set()
    for comparison in runs.comparisons:
        for size, entries in comparison.by_size().items():
            of_size = moves(entries)
            texts += _of_size(f"{comparison.name}, {ranks_of(size)}", of_size)
            all_moves += of_size
            frameworks |= {declaration_of(entry.backend).framework for entry in _candidates(entries) if _is_of_horovod(entry)}
    not_measured = sorted(frameworks - {move.framework for move in all_moves})
    if not_measured:
        owners = listed([framework + "'s" for framework in not_measured])
        texts.append(f"{owners} own strategy: {NOT_MEASURED}.")
    return Findings([*texts, *_in_the_code(all_moves), *([STAYING] if frameworks else [])], [])


def moves(entries: Sequence[Entry]) -> list[Move]:
    """Returns the moves between entries of one size, those to the fastest first: to data-parallel backends of other libraries."""
    candidates = _candidates(entries)
    by_factors = difference.entries_by_factors(candidates)
    moves_of_size = []
    for (framework, name, transport), alternative in by_factors.items():
        declaration = declaration_of(alternative.backend)
        if declaration.library in (LIBRARY, ALONE) or declaration.model_parallel:
            continue
        horovod = _horovod_for((framework, name, transport), by_factors)
        if horovod and (ratio := measures.epoch_ratio(alternative, horovod, candidates)):
            moves_of_size.append(Move(framework, name, horovod, alternative, ratio))
    return moves_of_size


def _candidates(entries: Sequence[Entry]) -> list[Entry]:
    """Returns those of the entries of one size whose seconds per epoch are comparable, the fastest first; none at 1 rank."""
    return [entry for entry in first.comparable(entries) if entry.num_ranks > 1]


def _is_of_horovod(entry: Entry) -> bool:
    return declaration_of(entry.backend).library == LIBRARY


def _horovod_for(factors: Factors, by_factors: Mapping[Factors, Entry]) -> Entry | None:
    """Returns the entry of Horovod to compare with: over the same transport, or the fastest if that library ran over none of Horovod's."""
    framework, name, transport = factors
    horovod_over = {over: entry for (of, _, over), entry in by_factors.items() if of == framework and _is_of_horovod(entry)}
    if transport in horovod_over:
        return horovod_over[transport]
    shares_transport = any((framework, name, over) in by_factors for over in horovod_over)
    return None if shares_transport else next(iter(horovod_over.values()), None)


def _of_size(at: str, of_size: Sequence[Move]) -> list[str]:
    """Returns the sentence on the moves at a size, those to a library over several transports together; nothing without any."""
    by_name: dict[tuple[str, str], list[Move]] = {}
    for move in of_size:
        by_name.setdefault((move.framework, move.name), []).append(move)
    few = f"; a verdict takes {MIN_RUNS_CONFIDENT} repeats" if any(move.ratio.verdict is None for move in of_size) else ""
    return [f"{at}, leaving {LIBRARY} {'; '.join(map(_to_library, by_name.values()))}{few}."] if by_name else []


def _to_library(over_transports: Sequence[Move]) -> str:
    """Returns the part of a sentence on the moves to a library; memory and start-up are those over the transport that comes first."""
    nearest = over_transports[0]
    memory = _amount("memory per rank", "MiB", ".0f", cost.peak_mib(nearest.alternative), cost.peak_mib(nearest.horovod))
    startup = _amount("start-up", "s", ".1f", cost.startup_seconds(nearest.alternative), cost.startup_seconds(nearest.horovod))
    return f"for {nearest.name}: {', '.join(statistics.present([*map(_change, over_transports), memory, startup]))}"


def _change(move: Move) -> str:
    over = f"over {move.alternative.transport}"
    if move.alternative.transport != move.horovod.transport:
        over += f" ({LIBRARY} over {move.horovod.transport})"
    bounds = interval(move.ratio) or runs_against(move.ratio.num_above, move.ratio.num_below, move.ratio.paired)
    words = equality(move.ratio) if move.ratio.verdict is False else f"{move.ratio.value:.2f} times as long per epoch"
    return f"{words} ({bounds}) {over}"


def _amount(name: str, unit: str, form: str, alternative: float | None, horovod: float | None) -> str | None:
    return None if alternative is None or horovod is None else f"{name} {alternative:{form}} {unit} for {horovod:{form}}"


def _in_the_code(all_moves: Sequence[Move]) -> list[str]:
    """Returns the sentence on what moves change in a program, from the declarations; nothing without any."""
    if not all_moves:
        return []
    alternative = dict.fromkeys(
        f"{file_of(move.alternative.backend)}: {declaration_of(move.alternative.backend).change}" for move in all_moves
    )
    horovod = dict.fromkeys(f"{file_of(move.horovod.backend)}: {declaration_of(move.horovod.backend).change}" for move in all_moves)
    return [f"What changes in the code: {'; '.join(alternative)}; in place of {'; '.join(horovod)}."]
