"""Whether the machine was as fast beside every run: from the kernels before and after it, and from the runs' own times by repeat."""

from collections.abc import Callable, Sequence
from operator import attrgetter

from common.record.definition import Record
from common.record.parts import MachineNoise
from launch.report import noise, repeats, slow_ranks
from launch.report.noise import QUIET_PERCENT, Farthest
from launch.report.repeats import Deviation, Repeat
from launch.report.tables import BACKEND, RANKS, Cell, Column, Findings, filled, through
from launch.report.words import ranks_of

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
    sentences += map(str, slow_ranks.slow_ranks(records))
    sentences += describe_repeats(list(repeats.judged(records)))
    return Findings(sentences, filled(TITLE, COLUMNS, sorted(far, key=lambda row: -abs(row.percent))))


def describe_repeats(judged: Sequence[Repeat]) -> list[str]:
    """Returns a sentence on each disturbed repeat, or one that there is none; nothing where no repeat could be judged."""
    disturbed = [repeat for repeat in judged if repeat.is_disturbed]
    if judged and not disturbed:
        return [f"None of {len(judged)} repeats was disturbed, which is more than {QUIET_PERCENT:g} % from the others of its matrix."]
    return [
        f"Repeat {repeat.number} of {repeat.comparison}, in {repeat.matrix}, was disturbed: "
        f"its epochs took {round(repeat.percent)} % longer at the median of its runs, "
        f"from {_slowed_down(repeat.runs[0])} to {_slowed_down(repeat.runs[-1])}."
        for repeat in disturbed
    ]


def _slowed_down(run: Deviation) -> str:
    """Describes by how much a run was slower than the median of its backend and size."""
    return f"{round(run.percent)} % ({run.record.backend}, {ranks_of(run.record.num_ranks)})"
