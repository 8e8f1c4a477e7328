"""The report on runs: the answer, the questions in order, each with sentences and tables, and notes."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from common.record.definition import Record
from common.record.files import Damaged
from common.words import listed
from launch.report import environments, reliability, statistics, table
from launch.report.answer import Answer, answer_of
from launch.report.entries import Comparison
from launch.report.findings import Findings, Section
from launch.report.questions import cost, difference, failed, first, leaving_horovod, machines, same, scaling, step
from launch.report.ratio_text import runs_against
from launch.report.runs import Runs, runs_of

# What answers a question about runs.
Answering = Callable[[Runs], Findings]
# The key of the section of what the answer says of its own reliability.
RELIABILITY = "reliability"
FOR_ONE_MACHINE = "For everything else about a machine, compare its records alone."


class Report(NamedTuple):
    """The content of a report. Its notes say what ran on which machine, and how to read it."""

    machine: str
    runs: Runs
    answer: Answer
    sections: list[Section]
    notes: list[str]


def of_each(answer: Callable[[Comparison], Findings]) -> Answering:
    """Returns what answers a question about runs by an answer for each comparison."""

    def answer_for_all(runs: Runs) -> Findings:
        findings = [answer(comparison) for comparison in runs.comparisons]
        sentences = [sentence for finding in findings for sentence in finding.sentences]
        return Findings(sentences, [table for finding in findings for table in finding.tables])

    return answer_for_all


# The questions by the key of their section, after RELIABILITY: about runs of one machine, and of several.
ONE_MACHINE: dict[str, tuple[str, Answering]] = {
    "first": (first.QUESTION, of_each(first.answer)),
    "difference": (difference.QUESTION, of_each(difference.answer)),
    "leaving": (leaving_horovod.QUESTION, leaving_horovod.answer),
    "scaling": (scaling.QUESTION, of_each(scaling.answer)),
    "cost": (cost.QUESTION, cost.answer),
    "step": (step.QUESTION, step.answer),
    "same": (same.QUESTION, of_each(same.answer)),
    "failed": (failed.QUESTION, failed.answer),
}
SEVERAL_MACHINES: dict[str, tuple[str, Answering]] = {
    "machines": (machines.QUESTION, machines.answer),
    "failed": (failed.QUESTION, failed.answer),
}


def report_of(records: Iterable[Record], damaged: Sequence[Damaged] = ()) -> Report:
    """Reports on records of one machine or of several, and on files that are not records.

    Raises UserError for records of a machine that are not comparable, or of different training.
    """
    runs = runs_of(records, damaged)
    answer = answer_of(runs)
    questions = SEVERAL_MACHINES if len(runs.machines) > 1 else ONE_MACHINE
    first_section, *further = [Section(key, question, *answer_for(runs)) for key, (question, answer_for) in questions.items()]
    sections = [first_section, Section(RELIABILITY, reliability.QUESTION, answer.reliability, []), *further]
    shown = [section for section in sections if section.sentences or section.tables]
    return Report(listed(runs.machines), runs, answer, shown, _notes(runs))


def _notes(runs: Runs) -> list[str]:
    """Returns what ran on which machine, and how to read what was measured."""
    if len(runs.machines) > 1:
        return [FOR_ONE_MACHINE]
    records, few = runs.compared, statistics.MIN_RUNS_WITH_INTERVAL
    texts = [*_machine(records), *_protocols(records)]
    if min(len(entry.records) for entry in runs.entries) < few:
        texts.append(f"Entries with fewer than {few} runs have no interval; use --repeats {statistics.MIN_RUNS_CONFIDENT}.")
    if any(entry.oversubscribed for entry in runs.entries):
        texts.append("Runs with more ranks than cores are oversubscribed: they are compared among themselves and do not measure scaling.")
    return texts


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
