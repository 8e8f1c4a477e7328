"""Answers for records of several machines, which are those of each beside the others."""

from collections.abc import Sequence

from common.record.definition import Record
from common.record.reading import Damaged
from common.words import listed
from launch.report import comparable, entries
from launch.report.questions import failed, machines
from launch.report.summary import Answer, left_out
from launch.report.tables import Section

ALONE = "For everything else about a machine, compare its records alone."


def of_machines(records: Sequence[Record], damaged: Sequence[Damaged] = ()) -> Answer:
    """Answers for records of several machines.

    Raises UserError for records of a machine that are not comparable, or of different training.
    """
    plain, traced = entries.split_traced(records)
    records_on = {
        machine: [record for record in plain if comparable.machine_of(record) == machine] for machine in comparable.machines_of(plain)
    }
    for records_of_machine in records_on.values():
        comparable.check(records_of_machine)
    comparable.check_training(plain)
    comparisons = [comparison for records_of_machine in records_on.values() for comparison in entries.comparisons(records_of_machine)]
    headline, findings = machines.answer(comparisons)
    failures = failed.failures_of([*comparisons, *entries.comparisons(traced)], damaged)
    sections = [
        Section("machines", machines.QUESTION, *findings),
        Section("failed", failed.QUESTION, *failed.answer(failures, len(plain) + len(traced) + len(damaged))),
    ]
    notes = left_out(traced)
    return Answer(listed(list(records_on)), headline, sections, [ALONE, *notes], comparisons, notes, failures=failures)
