"""Records of several machines -> an answer to one question of its own. Pure."""

from launch.report import comparable, entries
from launch.report.questions import failed, machines
from launch.report.summary import Answer, left_out
from launch.report.tables import Section
from launch.report.words import listed

ALONE = "For everything else about a machine, compare its records alone."


def of_machines(records, damaged=()):
    """The Answer of records of several machines: one question. Raises UserError for records of a machine that are not comparable, or of
    different training."""
    plain, traced = entries.split_traced(records)
    of_machine = {machine: [record for record in plain if record.settings.machine == machine] for machine in comparable.machines_of(plain)}
    for records_of_machine in of_machine.values():
        comparable.check(records_of_machine)
    comparable.check_training(plain)
    comparisons = [comparison for records_of_machine in of_machine.values() for comparison in entries.comparisons(records_of_machine)]
    headline, sentences, tables = machines.answer(comparisons)
    failures = failed.answer([*comparisons, *entries.comparisons(traced)], damaged)
    sections = [Section("machines", machines.QUESTION, sentences, tables), Section("failed", failed.QUESTION, *failures)]
    return Answer(listed(list(of_machine)), headline, sections, [ALONE, *left_out(traced)], comparisons)
