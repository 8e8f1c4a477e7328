"""Whether several matrices give the same verdicts, each by itself. Pure."""

import itertools

from launch.report import entries
from launch.report.entries import Entry
from launch.report.questions.first import VERDICTS
from launch.report.tables import INTERVAL, RANKS, Column, filled
from launch.report.words import interval, listed, ranks_of

QUESTION = "Does the answer hold when it is repeated?"
COLUMNS = (RANKS, Column("compared"), Column("matrix begun"), Column("ratio", ".2f"), INTERVAL, Column("verdict"))


def answer(compared):
    """(sentences, tables) on sizes at which several matrices have enough repeats for verdicts; empty where there are none."""
    sentences, tables = [], []
    for one in compared:
        rows = []
        for size in sorted({entry.num_ranks for entry in one.entries}):
            found = verdicts(one.of_size(size, oversubscribed=False), size)
            if found:
                sentences.append(_sentence(f"{one.name}, {ranks_of(size)}", found))
                rows += [_row(size, *pair, *of) for pair, ratios in found.items() if not _are_same(ratios) for of in ratios.items()]
        tables += filled(f"{one.name}: verdicts that differ between matrices", COLUMNS, rows)
    return sentences, tables


def verdicts(candidates, size):
    """{(backend, other): {when the matrix began: Ratio of their seconds per epoch}} of pairs with a verdict from several matrices."""
    matrices = {}
    for entry in candidates:
        for record in entry.runs:
            matrices.setdefault(entries.key_of(record)[0], {}).setdefault(entry.backend, []).append(record)
    began = {matrix: min(record.started_at for runs in cells.values() for record in runs) for matrix, cells in matrices.items()}
    found = {}
    for matrix, cells in sorted(matrices.items(), key=lambda item: began[item[0]]):
        for pair in itertools.combinations(sorted(cells), 2):
            ratio = entries.epoch_ratio(*(Entry(backend, size, tuple(cells[backend])) for backend in pair), len(cells))
            if ratio and ratio.verdict is not None:
                found.setdefault(pair, {})[began[matrix]] = ratio
    return {pair: ratios for pair, ratios in found.items() if len(ratios) > 1}


def direction(ratio):
    """1 where the first of a pair is slower, -1 where it is faster, 0 where no difference is shown."""
    return 0 if not ratio.verdict else 1 if ratio.value > 1 else -1


def _are_same(ratios):
    return len({direction(ratio) for ratio in ratios.values()}) == 1


def _sentence(at, found):
    began = list(dict.fromkeys(when for ratios in found.values() for when in ratios))
    same = sum(map(_are_same, found.values()))
    opposite = sum({1, -1} <= {direction(ratio) for ratio in ratios.values()} for ratios in found.values())
    differing = len(found) - same
    ending = f"; opposite verdicts: {opposite}, a difference that not all show: {differing - opposite}" if differing else ""
    return f"{at}: the matrices begun at {listed(began)} give the same verdict on {same} of {len(found)} pairs of backends{ending}."


def _row(size, backend, other, began, ratio):
    return size, f"{backend} against {other}", began, ratio.value, interval(ratio), _in_words(ratio)


def _in_words(ratio):
    return "faster" if direction(ratio) < 0 else VERDICTS[ratio.verdict]
