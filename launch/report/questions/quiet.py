"""Whether the machine was as fast beside every run, from the kernels that are measured before and after it. Pure."""

from launch.report import noise
from launch.report.noise import QUIET_PERCENT
from launch.report.tables import BACKEND, RANKS, Column, filled

QUESTION = "How quiet was the machine?"
TITLE = f"Runs beside which the machine's speed was more than {QUIET_PERCENT:g} % from its median"
COLUMNS = (
    Column("run"), BACKEND, RANKS, Column("farthest from the median (%)", "+.1f"), Column("steal (s)", ".2f"),
    Column("pressure (s)", ".2f"), Column("involuntary switches"),
)  # fmt: skip


def answer(records):
    """(sentences, tables) of the records of all comparisons."""
    measured = noise.farthest(records)
    far = [(record, percent) for record, percent in measured if abs(percent) > QUIET_PERCENT]
    sentences = []
    if measured:
        num_quiet = len(measured) - len(far)
        sentences.append(f"The machine's speed was within {QUIET_PERCENT:g} % of its median beside {num_quiet} of {len(measured)} runs.")
    if unknown := sum(record.status == "ok" and not record.machine_noise for record in records):
        sentences.append(f"It was not measured beside {unknown} runs, whose records are older.")
    return sentences, filled(TITLE, COLUMNS, [_row(*noisy) for noisy in sorted(far, key=lambda noisy: -abs(noisy[1]))])


def _row(record, percent):
    disturbed = record.machine_noise
    return (
        record.settings.run_id, record.backend, record.num_ranks, percent, disturbed.steal_seconds, disturbed.pressure_seconds,
        sum(disturbed.involuntary_switches_by_rank),
    )  # fmt: skip
