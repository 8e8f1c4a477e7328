"""What each backend has to offer at each size: time, state, traffic, exactness, and what it changes in a program."""

from collections.abc import Hashable

from common.backends import file_of
from common.cost import volumes
from common.declarations import declared
from common.terminal import Table, filled
from common.words import ranks_of
from launch.report import environments, measures
from launch.report.entries import Comparison, Entry
from launch.report.environments import Limit
from launch.report.findings import MB, MIB, Cells, in_unit
from launch.report.questions import step

TERA = 10**12
# The share of the peak of a run that is faster.
FAULTY = "measured wrongly"
FLOPS_PER_SECOND = "flops_per_second_per_rank"


def tables(comparison: Comparison, limit_of: dict[Hashable, Limit]) -> list[Table]:
    """Returns the table of a comparison's entries with completed runs, by the limits of the machine (launch/report/environments.py)."""
    rows = [_row(comparison, entry, limit_of) for entry in comparison.entries if entry.ok]
    return filled(f"{comparison.name}: which to choose", rows)


def _row(comparison: Comparison, entry: Entry, limit_of: dict[Hashable, Limit]) -> Cells:
    def volume(column: str, unit: float) -> float | None:
        return in_unit(entry.trimmed_mean(column), unit)

    share, declaration = _share_of_limit(entry, limit_of), declared().get(file_of(entry.backend))
    return entry.cells | {
        "seconds per epoch": measures.epoch_seconds(entry),
        # Images have no tokens.
        "tokens/s": entry.trimmed_mean("tokens_per_second"),
        "TFLOP/s per rank": volume(FLOPS_PER_SECOND, TERA),
        "share of peak (%)": FAULTY if share and share > 1 else share and 100 * share,
        "state per rank (MiB)": volume("state_bytes", MIB),
        "expected (MiB)": volume("expected_state_bytes", MIB),
        "sent per step (MB)": volume("sent_per_step_bytes", MB),
        "by formula (MB)": volume("expected_sent_per_step_bytes", MB),
        "by collective (MB)": _collectives(entry),
        "exposed share of a step (%)": step.exposed_percent(comparison, entry),
        "training": "exact" if entry.exact else "approximate",
        "change to the program": declaration and declaration.change,
    }


def faults(comparison: Comparison, limit_of: dict[Hashable, Limit]) -> list[str]:
    """Returns a sentence on each entry whose training is faster than the machine's limit, which nothing is."""
    return [
        f"{comparison.name}, {entry.backend} at {ranks_of(entry.num_ranks)}: training computes {share:.2f} times as fast as the "
        "fastest matrix product; one of both is measured wrongly."
        for entry in comparison.entries
        if (share := _share_of_limit(entry, limit_of)) and share > 1
    ]


def _share_of_limit(entry: Entry, limit_of: dict[Hashable, Limit]) -> float | None:
    """Returns the FLOP/s of a rank as a share of the machine's limit, the fastest product of any library in any of the records."""
    return environments.share_of_limit(entry.trimmed_mean(FLOPS_PER_SECOND), entry.ok, limit_of)


def _collectives(entry: Entry) -> str | None:
    """Returns the collectives by which a rank sends, of the first run that has counted them."""
    return next((text for record in entry.ok if (text := volumes.describe_collectives(record))), None)
