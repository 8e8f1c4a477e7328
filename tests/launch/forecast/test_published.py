"""The law on the published tables: each source and machine is forecast from the others, and the page has what came of it."""

import csv
import functools
import math
import re
from collections import defaultdict
from statistics import mean, median
from typing import NamedTuple

import pytest

from launch.forecast import law, tables
from tests.support.running import ROOT

PAGE = (ROOT / "launch" / "forecast" / "README.md").read_text()
PUBLISHED = tables.published()
# Those on which laws were compared first.
FIRST = {"interTwin-eu/itwinai", "NVIDIA/DeepLearningExamples", "mosaicml/llm-foundry", "pytorch/torchtitan"}
SOURCE = re.compile(r"[\w.-]+/[\w.-]+(@[\w.]+)?:[\w./-]+\.(md|rst)(:\d+)?( \(.*\))?")


class Judged(NamedTuple):
    """A size of a published table that was forecast without any table of its source and machine."""

    table: tables.Table
    beyond: float
    error: float
    covered: bool
    constant_error: float
    own_error: float


@functools.cache
def judged():
    """Every size of every published table, forecast from two or more smaller ones."""
    results = []
    for group in sorted({table.group for table in PUBLISHED}):
        of_others = law.law_of([table for table in PUBLISHED if table.group != group])
        for table in PUBLISHED:
            if table.group == group:
                results += [_judged(table, table.until(number), size, of_others) for number, size in cells(table)]
    return results


def cells(table):
    return [(number, size) for number in range(2, len(table.sizes)) for size in table.sizes[number:]]


def _judged(table, used, size, of_others):
    measured, forecast = table.throughputs[size], law.forecast(used, size, of_others)
    beyond = size / used.largest
    share = min(max(law.loss_of(used), 0), 1)
    by_law = beyond ** (1 - law.loss_of(used)) if table.scaling == "weak" else 1 / (share + (1 - share) / beyond)
    errors = [abs(throughput / measured - 1) for throughput in (used.throughputs[used.largest] * speed for speed in (beyond**0.98, by_law))]
    return Judged(table, beyond, abs(forecast.throughput / measured - 1), forecast.low <= measured <= forecast.high, *errors)


SUBSETS = {
    "the first 42 tables": lambda cell: cell.table.group[0] in FIRST,
    "all 73 tables": lambda cell: True,
    "weak scaling": lambda cell: cell.table.scaling == "weak",
    "strong scaling": lambda cell: cell.table.scaling == "strong",
    "at 4 times or more": lambda cell: cell.beyond >= 4,
    **{name: lambda cell, name=name: name in cell.table.backend for name in ("Horovod", "DDP", "DeepSpeed", "FSDP")},
}


def of(subset):
    return [cell for cell in judged() if SUBSETS[subset](cell)]


def figures(errors):
    return f"{100 * median(errors):.1f} %", f"{100 * mean(errors):.1f} %"


def test_the_page_has_these_figures():
    lines = []
    for law_name, attribute in (
        ("one constant: throughput ~ n^0.98", "constant_error"),
        ("the own sizes alone", "own_error"),
        ("this law", "error"),
    ):
        columns = [figures([getattr(cell, attribute) for cell in of(name)]) for name in ("the first 42 tables", "all 73 tables")]
        lines.append(f"| {law_name} | {' | '.join(part for column in columns for part in column)} |")
    for name in SUBSETS:
        covered = f"{100 * mean(cell.covered for cell in of(name)):.0f} %"
        lines.append(f"| {name} | {len(of(name))} | {' | '.join(figures([cell.error for cell in of(name)]))} | {covered} |")
    assert [line for line in lines if line not in PAGE] == []


def test_every_published_table_says_where_it_is_from_and_can_be_read():
    with tables.PUBLISHED.open(newline="") as file:
        rows = list(csv.DictReader(file))
    constant = ["table", "source", "machine", "gpus_per_node", "backend", "model", "scaling"]
    assert list(rows[0]) == [*constant, "gpus", "samples_per_second", "seconds_per_epoch"]
    constants_of = defaultdict(set)
    for row in rows:
        assert SOURCE.fullmatch(row["source"]), row
        constants_of[row["table"]].add(tuple(row[name] for name in constant))
        assert all(row[name] for name in constant), row
        assert bool(row["samples_per_second"]) != bool(row["seconds_per_epoch"]), row
        assert (row["scaling"] == "strong") is bool(row["seconds_per_epoch"]), row
    assert [table for table, of_table in constants_of.items() if len(of_table) > 1] == []
    assert len(PUBLISHED) == len(constants_of) == 73
    assert all(len(table.sizes) > 1 and table.sizes == sorted(table.sizes) for table in PUBLISHED)
    assert len(rows) == sum(len(table.sizes) for table in PUBLISHED), "a size stands there twice"
    # Nothing trains much faster on more GPUs than on as many single ones.
    for table in PUBLISHED:
        assert all(0.2 < table.efficiency(size, speed) < 1.1 for size, speed in table.throughputs.items()), table


def test_the_law_finds_the_loss_of_a_table_that_has_one():
    sizes = (2, 4, 8)
    weak = tables.Table("ddp", "", "weak", "gpus", "samples_per_second", {size: size**0.9 for size in sizes})
    strong = tables.Table("ddp", "", "strong", "gpus", "seconds_per_epoch", {size: 1 / (1 + 8 / size) for size in sizes})
    assert math.isclose(law.loss_of(weak), 0.1)
    # Of two seconds at 8 GPUs one does not shrink.
    assert math.isclose(law.loss_of(strong), 0.5)
    # The published loss counts as much as two doublings under weak scaling, and a tenth of one under strong scaling.
    assert math.isclose(law.expected(weak, 16, 0.0), 8**0.9 * 2**0.95)
    assert math.isclose(law.expected(strong, 16, 0.5), 1 / (1 + 8 / 16))


@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_more_gpus_than_ever_pay_are_not_forecast_from_a_superlinear_table(scaling):
    table = tables.Table("ddp", "", scaling, "gpus", "samples_per_second", {1: 1.0, 2: 2.6})
    assert math.isclose(law.expected(table, 8, 0.0), 2.6 * 4)


def test_the_band_of_few_tables_is_their_largest_error_and_grows_with_the_root_of_the_doublings():
    band = law.law_of(PUBLISHED).bands["strong", None]
    strong = [cell for cell in law.held_out(PUBLISHED) if cell.table.scaling == "strong"]
    assert band.num_tables == len({cell.table.name for cell in strong}) < 19
    assert band.below == band.above == max(abs(cell.error) / cell.doublings**0.5 for cell in strong)
    table = next(table for table in PUBLISHED if table.scaling == "strong")
    near, far = (law.forecast(table, table.largest * 2**doublings, law.law_of(PUBLISHED)) for doublings in (1, 4))
    assert math.isclose(far.width, near.width**2)


def test_the_band_is_wider_across_the_edge_of_a_node():
    bands = law.law_of(PUBLISHED).bands
    assert bands["weak", True].below > 2 * bands["weak", False].below
    table = tables.Table("ddp", "", "weak", "gpus", "samples_per_second", {2: 2.0, 4: 4.0})
    widths = [law.forecast(table._replace(gpus_per_node=gpus), 8, law.law_of(PUBLISHED)).width for gpus in (4, None, 2, 8)]
    assert widths[0] > widths[1] > widths[2] == widths[3]
