"""Whether the machine was as fast beside every run, from the kernels that are measured before and after it."""

from collections.abc import Callable, Sequence
from operator import attrgetter

from common.record.definition import MachineNoise, Record
from launch.report import noise
from launch.report.noise import QUIET_PERCENT, Farthest
from launch.report.tables import BACKEND, RANKS, Cell, Column, Findings, filled, through

QUESTION = "How quiet was the machine?"
TITLE = f"Runs beside which the machine's speed was more than {QUIET_PERCENT:g} % from its median"


def _noise(value_of: Callable[[MachineNoise], Cell]) -> Callable[[Farthest], Cell]:
    """Returns a function that gives what a run has measured of the machine's noise."""
    return lambda row: value_of(row.record.machine_noise) if row.record.machine_noise else None


COLUMNS: tuple[Column[Farthest], ...] = (
    Column("run", attrgetter("record.settings.run_id")),
    *through("record", BACKEND, RANKS),
    Column("farthest from the median (%)", attrgetter("percent"), "+.1f"),
    Column("steal (s)", _noise(attrgetter("steal_seconds")), ".2f"),
    Column("pressure (s)", _noise(attrgetter("pressure_seconds")), ".2f"),
    Column("involuntary switches", _noise(lambda disturbed: sum(disturbed.involuntary_switches_by_rank))),
)


def answer(records: Sequence[Record]) -> Findings:
    """Answers for the records of all comparisons."""
    measured = noise.farthest(records)
    far = [row for row in measured if abs(row.percent) > QUIET_PERCENT]
    sentences = []
    if measured:
        num_quiet = len(measured) - len(far)
        sentences.append(f"The machine's speed was within {QUIET_PERCENT:g} % of its median beside {num_quiet} of {len(measured)} runs.")
    if unknown := sum(record.status == "ok" and not record.machine_noise for record in records):
        sentences.append(f"It was not measured beside {unknown} runs, whose records are older.")
    return Findings(sentences, filled(TITLE, COLUMNS, sorted(far, key=lambda row: -abs(row.percent))))
