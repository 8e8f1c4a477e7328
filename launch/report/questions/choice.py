"""What each backend has to offer at each size: time, state, traffic, exactness, and what it changes in a program. Pure."""

from common.backends import declared, file_of
from launch.report import entries, statistics, volumes
from launch.report.questions import step
from launch.report.tables import BACKEND, MB, MIB, NOT_MEASURED, RANKS, Column, apart, filled

TERA = 10**12
FIRST = (BACKEND, RANKS, Column("seconds per epoch", ".3f"))
COLUMNS = (
    Column("state per rank (MiB)", ".2f", brief=True), Column("expected (MiB)", ".2f", brief=True),
    Column("sent per step (MB)", ".2f", brief=True), Column("by formula (MB)", ".2f", brief=True), Column("by collective (MB)"),
    Column("exposed share of a step (%)", ".0f", brief=True), Column("training"), Column("change to the program", brief=True),
)  # fmt: skip
# After FIRST, where a run has them: images have no tokens.
THROUGHPUT = (Column("tokens/s", ".0f", brief=True), Column("TFLOP/s per rank", ".4g"), Column("share of peak (%)", ".1f", brief=True))


def tables(comparison):
    """The tables of a comparison's entries with completed runs; those that are oversubscribed have their own."""
    chosen = []
    for title, ran in apart(f"{comparison.name}: which to choose", [entry for entry in comparison.entries if entry.ok]):
        rates = [_rates(entry, [candidate for candidate in ran if candidate.num_ranks == entry.num_ranks]) for entry in ran]
        measured = [number for number in range(len(THROUGHPUT)) if any(values[number] is not None for values in rates)]
        columns = (*FIRST, *(THROUGHPUT[number] for number in measured), *COLUMNS)
        rows = [_row(comparison, entry, [values[number] for number in measured]) for entry, values in zip(ran, rates, strict=True)]
        chosen += filled(title, columns, rows)
    return chosen


def _rates(entry, same_size):
    """The values of THROUGHPUT of an entry, among all of its size; None for what is not known.

    The peak is the most that products reached in any of them: their devices are the same, but one library may use them better.
    """
    tokens, rate, own_peak = (
        entries.typical(entry, key) for key in ("tokens_per_second", "flops_per_second_per_rank", "peak_flops_per_second")
    )
    peaks = statistics.present(entries.typical(candidate, "peak_flops_per_second") for candidate in same_size)
    return tokens, rate and rate / TERA, 100 * rate / max(peaks) if rate and own_peak else None


def _row(comparison, entry, rates):
    exposed = step.exposed_percent(comparison, entry)
    state, expected_state = (_typical(entry, volume, MIB) for volume in (volumes.state_bytes, volumes.expected_state_bytes))
    sent, expected_sent = (_typical(entry, volume, MB) for volume in (volumes.sent_bytes, volumes.expected_sent_bytes))
    declaration = declared().get(file_of(entry.backend))
    return (
        entry.backend,
        entry.num_ranks,
        entries.epoch_seconds(entry),
        *rates,
        NOT_MEASURED if state is None else state,
        expected_state,
        NOT_MEASURED if sent is None else sent,
        expected_sent,
        _collectives(entry),
        exposed if exposed is not None or step.parts(comparison, entry) else NOT_MEASURED,
        "exact" if entry.exact else "approximate",
        declaration and declaration.change,
    )


def _typical(entry, volume, unit):
    """The typical value of a function of launch/report/volumes.py over the completed runs; None where no run has it."""
    typical = statistics.typical_or_none(map(volume, entry.ok))
    return None if typical is None else typical / unit


def _collectives(entry):
    """The collectives by which a rank sends, with the MB of each, the largest first; of the first run that has them."""
    sent_bytes = next((sent for record in entry.ok if (sent := volumes.sent_by_collective(record))), {})
    texts = {name: f"{size / MB:.2f}" for name, size in sorted(sent_bytes.items(), key=lambda item: -item[1])}
    return ", ".join(f"{name.replace('_', '-')} {text}" for name, text in texts.items() if float(text)) or None
