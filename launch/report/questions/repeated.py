"""Whether several matrices give the same verdicts, each by itself. Pure."""

import itertools

from launch.report import entries
from launch.report.entries import Entry
from launch.report.questions.first import SLOWER
from launch.report.tables import INTERVAL, RANKS, Column, filled
from launch.report.words import NO_DIFFERENCE, interval, listed, ranks_of

QUESTION = "Does the answer hold when it is repeated?"
FASTER = "faster"
COLUMNS = (RANKS, Column("compared"), Column("matrix begun"), Column("ratio", ".2f"), INTERVAL, Column("verdict"))


def answer(comparison):
    """(sentences, tables) on sizes at which several matrices have enough repeats for verdicts; empty where there are none."""
    sentences, rows = [], []
    for size in comparison.sizes:
        candidates = comparison.of_size(size, oversubscribed=False)
        ratios_of = _verdicts(candidates, size)
        if ratios_of:
            sentences.append(_sentence(f"{comparison.name}, {ranks_of(size)}", ratios_of, _seeds(candidates)))
            differing = [(pair, ratios) for pair, ratios in ratios_of.items() if not _are_same(ratios)]
            rows += [_row(size, *pair, began, ratio) for pair, ratios in differing for began, ratio in ratios.items()]
    return sentences, filled(f"{comparison.name}: verdicts that differ between matrices", COLUMNS, rows)


def _verdicts(candidates, size):
    """{(backend, reference): {when the matrix began: Ratio of their seconds per epoch}} of pairs with a verdict from several matrices."""
    ratios_of = {}
    for records in entries.matrices(record for entry in candidates for record in entry.records).values():
        records_of = {}
        for record in records:
            records_of.setdefault(record.backend, []).append(record)
        compared = [Entry(backend, size, tuple(records_of[backend])) for backend in sorted(records_of)]
        for above, below in itertools.combinations(compared, 2):
            ratio = entries.epoch_ratio(above, below, compared)
            if ratio and ratio.verdict is not None:
                ratios_of.setdefault((above.backend, below.backend), {})[records[0].started_at] = ratio
    return {pair: ratios for pair, ratios in ratios_of.items() if len(ratios) > 1}


def _seeds(candidates):
    """Whether the matrices repeat each other's trainings, in words."""
    seeds_of_matrices = {(entries.key_of(record)[0], record.seed) for entry in candidates for record in entry.records}
    are_other = len(seeds_of_matrices) == len({seed for _, seed in seeds_of_matrices})
    return "with other seeds" if are_other else "with seeds in common"


def _verdict(ratio):
    """How the first of a pair compares with the second, in words."""
    return (FASTER if ratio.value < 1 else SLOWER) if ratio.verdict else NO_DIFFERENCE


def _are_same(ratios):
    return len(set(map(_verdict, ratios.values()))) == 1


def _sentence(at, ratios_of, seeds):
    began = list(dict.fromkeys(itertools.chain(*ratios_of.values())))
    verdicts_of = [set(map(_verdict, ratios.values())) for ratios in ratios_of.values()]
    differing = [verdicts for verdicts in verdicts_of if verdicts != {NO_DIFFERENCE}]
    by_all = sum(len(verdicts) == 1 for verdicts in differing)
    opposite = sum({FASTER, SLOWER} <= verdicts for verdicts in differing)
    shown = f"one or more show a difference for {len(differing)} pairs of backends, all for {by_all}, opposite ones for {opposite}"
    return f"{at}: of the matrices begun at {listed(began)}, {seeds}, {shown}; {NO_DIFFERENCE} for {len(verdicts_of) - len(differing)}."


def _row(size, backend, reference, began, ratio):
    return size, f"{backend} against {reference}", began, ratio.value, interval(ratio), _verdict(ratio)
