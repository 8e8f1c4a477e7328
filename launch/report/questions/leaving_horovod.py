"""Whether leaving Horovod for what trains the same in the same framework costs or gains: time, memory, start-up and code."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from common import backends
from common.backends import declaration_of, file_of
from common.declarations import ALONE
from common.words import ranks_of
from launch.report import statistics
from launch.report.entries import Entry, epoch_ratio
from launch.report.findings import NOT_MEASURED, Findings
from launch.report.questions import cost, difference, first
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
    """An entry of Horovod, one of another library in its framework, and the ratio of the latter's seconds per epoch to the former's."""

    library: str
    horovod: Entry
    alternative: Entry
    ratio: Ratio


def answer(runs: Runs) -> Findings:
    """Answers for the backends of comparisons that train the same on cores of their own, at each size with an exchange."""
    candidates_at = {
        f"{comparison.name}, {ranks_of(size)}": first.comparable(entries)
        for comparison in runs.comparisons
        for size, entries in comparison.by_size().items()
        if size > 1
    }
    names = dict.fromkeys(entry.backend for candidates in candidates_at.values() for entry in candidates if _is_of_horovod(entry.backend))
    if not names:
        return Findings([], [])
    moves_at = {at: of_size for at, candidates in candidates_at.items() if (of_size := moves(candidates))}
    all_moves = [move for of_size in moves_at.values() for move in of_size]
    texts = [_sentence(at, of_size) for at, of_size in moves_at.items()]
    return Findings([*texts, *_not_measured(names, all_moves), *_in_the_code(all_moves), STAYING], [])


def moves(candidates: Sequence[Entry]) -> list[Move]:
    """Returns the moves between comparable entries of one size, those to the fastest first.

    Both sides have one transport. A library that ran over none of Horovod's is compared with the fastest of Horovod.
    """
    by_factors = difference.entries_by_factors(candidates)
    moves_of_size = []
    for (framework, library, transport), alternative in by_factors.items():
        horovod_over = {over: entry for (of, _, over), entry in by_factors.items() if of == framework and _is_of_horovod(entry.backend)}
        shares_transport = any((framework, library, over) in by_factors for over in horovod_over)
        horovod = horovod_over.get(transport) if shares_transport else next(iter(horovod_over.values()), None)
        if _is_alternative(alternative.backend) and horovod and (ratio := epoch_ratio(alternative, horovod, candidates)):
            moves_of_size.append(Move(library, horovod, alternative, ratio))
    return moves_of_size


def _is_of_horovod(backend: str) -> bool:
    return declaration_of(backend).library == LIBRARY


def _is_alternative(backend: str) -> bool:
    """Returns whether a backend is data-parallel and of another library."""
    return declaration_of(backend).library not in (LIBRARY, ALONE) and not declaration_of(backend).model_parallel


def _sentence(at: str, of_size: Iterable[Move]) -> str:
    """Returns the sentence on the moves at a size, those to a library over several transports together."""
    by_library: dict[str, list[Move]] = {}
    for move in of_size:
        by_library.setdefault(move.library, []).append(move)
    few = f"; a verdict takes {MIN_RUNS_CONFIDENT} repeats" if any(move.ratio.verdict is None for move in of_size) else ""
    return f"{at}, leaving {LIBRARY} {'; '.join(map(_to_library, by_library.values()))}{few}."


def _to_library(over_transports: Sequence[Move]) -> str:
    """Returns the part of a sentence on the moves to a library; memory and start-up are those over the transport that comes first."""
    nearest = over_transports[0]
    memory = _amount("memory per rank", "MiB", ".0f", cost.peak_mib(nearest.alternative), cost.peak_mib(nearest.horovod))
    startup = _amount("start-up", "s", ".1f", cost.startup_seconds(nearest.alternative), cost.startup_seconds(nearest.horovod))
    return f"for {nearest.library}: {', '.join(statistics.present([*map(_change, over_transports), memory, startup]))}"


def _change(move: Move) -> str:
    over = f"over {move.alternative.transport}"
    if move.alternative.transport != move.horovod.transport:
        over += f" ({LIBRARY} over {move.horovod.transport})"
    bounds = interval(move.ratio) or runs_against(move.ratio.num_above, move.ratio.num_below, move.ratio.paired)
    words = equality(move.ratio) if move.ratio.verdict is False else f"{move.ratio.value:.2f} times as long per epoch"
    return f"{words} ({bounds}) {over}"


def _amount(name: str, unit: str, form: str, alternative: float | None, horovod: float | None) -> str | None:
    return None if alternative is None or horovod is None else f"{name} {alternative:{form}} {unit} for {horovod:{form}}"


def _not_measured(names: Iterable[str], all_moves: Iterable[Move]) -> list[str]:
    """Returns what to run for each framework of these backends of Horovod without a move to what a default matrix has for it."""
    moved = {declaration_of(move.horovod.backend).framework for move in all_moves}
    texts = []
    for framework in sorted({declaration_of(name).framework for name in names} - moved):
        alternatives = [name for name in backends.chosen(None) if _is_alternative(name) and declaration_of(name).framework == framework]
        if alternatives:
            both = [*(name for name in names if declaration_of(name).framework == framework), *alternatives]
            texts.append(f"{framework} without {LIBRARY}: {NOT_MEASURED}; measure it with --backends {','.join(both)}.")
    return texts


def _in_the_code(all_moves: Sequence[Move]) -> list[str]:
    """Returns the sentence on what moves change in a program, from the declarations; nothing without any."""
    if not all_moves:
        return []
    alternatives, horovod = (
        "; ".join(dict.fromkeys(f"{file_of(name)}: {declaration_of(name).change}" for name in side))
        for side in ([move.alternative.backend for move in all_moves], [move.horovod.backend for move in all_moves])
    )
    return [f"What changes in the code: {alternatives}; in place of {horovod}."]
