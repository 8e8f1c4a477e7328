"""What each backend has to offer at each size: time, state, traffic, exactness, and what it changes in a program. Pure."""

from common.backends import declared, file_of
from launch.report import entries, statistics, volumes
from launch.report.questions import step
from launch.report.tables import BACKEND, MIB, OVERSUBSCRIBED, RANKS, Column, filled

MB = 10**6
NOT_MEASURED = "not measured"
COLUMNS = (
    BACKEND, RANKS, Column("seconds per epoch", ".3f"), Column("state per rank (MiB)", ".2f"), Column("expected (MiB)", ".2f"),
    Column("sent per step (MB)", ".2f"), Column("by formula (MB)", ".2f"), Column("by collective (MB)"),
    Column("exposed share of a step (%)", ".0f"), Column("training"), Column("change to the program"),
)  # fmt: skip


def tables(compared):
    """The tables of a comparison's entries with completed runs; those that are oversubscribed have their own."""
    found, title = [], f"{compared.name}: which to choose"
    for own_title, shared in ((title, False), (f"{title}, {OVERSUBSCRIBED}", True)):
        found += filled(own_title, COLUMNS, [_row(entry) for entry in compared.entries if entry.ok and entry.oversubscribed == shared])
    return found


def _row(entry):
    parts = step.parts(entry)
    return (
        entry.backend,
        entry.num_ranks,
        entries.epoch_seconds(entry),
        _measured(_typical(entry, volumes.state_bytes, MIB)),
        _typical(entry, volumes.expected_state_bytes, MIB),
        _measured(_typical(entry, volumes.sent_bytes, MB)),
        _typical(entry, volumes.expected_sent_bytes, MB),
        _collectives(entry),
        _measured(100 * parts["exposed communication"] / sum(parts.values()) if parts else None),
        "exact" if entry.exact else "approximate",
        declared()[file_of(entry.backend)].change if file_of(entry.backend) in declared() else None,
    )


def _typical(entry, volume, unit):
    """The typical value of a function of launch/report/volumes.py over the completed runs; None where no run has it."""
    known = [value for run in entry.ok if (value := volume(run)) is not None]
    return float(statistics.typical(known)) / unit if known else None


def _measured(value):
    return NOT_MEASURED if value is None else value


def _collectives(entry):
    """The collectives by which a rank sends, with the MB of each, the largest first; of the first run that has them."""
    found = next((sent for run in entry.ok if (sent := volumes.sent_by_collective(run))), {})
    texts = {name: f"{size / MB:.2f}" for name, size in sorted(found.items(), key=lambda item: -item[1])}
    return ", ".join(f"{name.replace('_', '-')} {text}" for name, text in texts.items() if float(text)) or None
