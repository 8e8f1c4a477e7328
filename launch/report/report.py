"""The report on runs: the answer, the questions in order, each with sentences and tables."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from common.record.definition import Record
from common.record.files import Damaged
from launch.report import reliability
from launch.report.answer import Answer, answer_of
from launch.report.entries import Comparison
from launch.report.findings import Findings, Section
from launch.report.questions import cost, difference, failed, first, leaving_horovod, same, scaling, step
from launch.report.runs import Runs, runs_of

# What answers a question about runs.
Answering = Callable[[Runs], Findings]
# The key of the section of what the answer says of its own reliability.
RELIABILITY = "reliability"


class Report(NamedTuple):
    """The content of a report."""

    machine: str
    runs: Runs
    answer: Answer
    sections: list[Section]


def of_each(answer: Callable[[Comparison], Findings]) -> Answering:
    """Returns what answers a question about runs by an answer for each comparison."""

    def answer_for_all(runs: Runs) -> Findings:
        findings = [answer(comparison) for comparison in runs.comparisons]
        sentences = [sentence for finding in findings for sentence in finding.sentences]
        return Findings(sentences, [table for finding in findings for table in finding.tables])

    return answer_for_all


# The questions by the key of their section, beside RELIABILITY.
QUESTIONS: dict[str, tuple[str, Answering]] = {
    "first": (first.QUESTION, of_each(first.answer)),
    "difference": (difference.QUESTION, of_each(difference.answer)),
    "leaving": (leaving_horovod.QUESTION, leaving_horovod.answer),
    "scaling": (scaling.QUESTION, of_each(scaling.answer)),
    "cost": (cost.QUESTION, cost.answer),
    "step": (step.QUESTION, step.answer),
    "same": (same.QUESTION, of_each(same.answer)),
    "failed": (failed.QUESTION, failed.answer),
}


def report_of(records: Iterable[Record], damaged: Sequence[Damaged] = ()) -> Report:
    """Reports on records of one machine, and on files that are not records. Raises UserError for records that are not comparable."""
    runs = runs_of(records, damaged)
    answer = answer_of(runs)
    first_section, *further = [Section(key, question, *answer_for(runs)) for key, (question, answer_for) in QUESTIONS.items()]
    sections = [first_section, Section(RELIABILITY, reliability.QUESTION, answer.reliability, []), *further]
    shown = [section for section in sections if section.sentences or section.tables]
    return Report(runs.machine, runs, answer, shown)
