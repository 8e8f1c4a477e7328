"""The caveats of a report: what ran on which machine, what is left out, and why records may not be comparable."""

from collections.abc import Iterable, Sequence

from common.record.definition import Record
from common.words import listed, ranks_of
from launch.report import environments, statistics, table
from launch.report.entries import Comparison
from launch.report.ratio_text import runs_against
from launch.report.runs import SLOWED_DOWN, Runs

# NCCL's name of TCP, in the log of what it has chosen.
NCCL_OVER_TCP = "Socket"
SEVERAL_MACHINES = "For everything else about a machine, compare its records alone."
OTHER_SEEDS = "backends have different seeds, which need different numbers of epochs: compare seconds per epoch, not times to solution."


def notes(runs: Runs) -> list[str]:
    """Returns the caveats on runs, and the warnings at their end."""
    if len(runs.machines) > 1:
        return [SEVERAL_MACHINES, *warnings(runs)]
    records, few = runs.compared, statistics.MIN_RUNS_WITH_INTERVAL
    texts = [*_machine(records), *_protocols(records)]
    if min(len(entry.records) for entry in runs.entries) < few:
        texts.append(f"Entries with fewer than {few} runs have no interval; use --repeats {statistics.MIN_RUNS_CONFIDENT}.")
    if num_over_tcp := sum(record.environment.nccl_network == NCCL_OVER_TCP for record in records):
        num_runs = "1 run" if num_over_tcp == 1 else f"{num_over_tcp} runs"
        texts.append(f"NCCL used TCP between the nodes of {num_runs}: it found no plugin for a faster network (NCCL_NET).")
    if any(entry.oversubscribed for entry in runs.entries):
        texts.append("Runs with more ranks than cores are oversubscribed: they are compared among themselves and do not measure scaling.")
    return [*texts, *warnings(runs)]


def warnings(runs: Runs) -> list[str]:
    """Returns a sentence on the runs that are left out, and on each reason why records of one machine may not be comparable."""
    traced = [f"{len(runs.traced)} of the runs were {SLOWED_DOWN}, and are left out."] if runs.traced else []
    return traced if len(runs.machines) > 1 else [*traced, *(text for comparison in runs.comparisons for text in _differences(comparison))]


def _differences(comparison: Comparison) -> list[str]:
    values_of = environments.values_of(comparison.records)
    return [
        *(f"{comparison.name}, {ranks_of(size)}: {OTHER_SEEDS}" for size in comparison.sizes if _have_other_seeds(comparison, size)),
        *(f"{comparison.name}: records differ in {name}: {', '.join(values)}." for name, values in values_of.items() if len(values) > 1),
    ]


def _have_other_seeds(comparison: Comparison, size: int) -> bool:
    """Returns whether the backends of a size trained from different seeds."""
    return len({frozenset(record.seed for record in entry.records) for entry in comparison.of_size(size)}) > 1


def _machine(records: Iterable[Record]) -> list[str]:
    """Returns the sentence on the nodes and the limit of the machine; none on records that do not know it."""
    records = list(records)
    nodes = sorted({environments.describe_node(record.environment) for record in records})
    products = listed(environments.describe_limits(records))
    return [f"Machine: {'; '.join(nodes)}. The fastest matrix product of a rank reaches {products}."] if products else []


def _protocols(records: Iterable[Record]) -> list[str]:
    """Returns a sentence on those of several matrices that ran the same: when they began, with which seeds, and what at which commit."""
    matrices: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.started_at):
        matrices.setdefault(table.matrix(record), []).append(record)
    if len(matrices) < 2:
        return []
    begun_of: dict[str, list[str]] = {}
    for matrix in matrices.values():
        seeds = {record.seed for record in matrix}
        begun_of.setdefault(_protocol(matrix), []).append(f"{matrix[0].started_at} (seeds {min(seeds)} to {max(seeds)})")
    return [f"{'Matrix' if len(begun) == 1 else 'Matrices'} begun at {listed(begun)}: {protocol}." for protocol, begun in begun_of.items()]


def _protocol(records: Sequence[Record]) -> str:
    """Describes what a matrix ran, and at which commit."""
    values = environments.values_of(records)
    sizes = {record.num_ranks for record in records}
    num_repeats = max(record.repeat for record in records) + 1
    texts = (
        f"commit {', '.join(values['commit'])}",
        f"{listed([str(size) for size in sorted(sizes)])} {'rank' if sizes == {1} else 'ranks'} of "
        + listed(sorted({record.backend for record in records})),
        runs_against(num_repeats, num_repeats, paired=False),
        *values["turns"],
    )
    return ", ".join(texts)
