"""The report on records: questions in order, each with sentences and tables, and notes."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from common.errors import UserError
from common.record import files
from common.record.definition import Record
from common.record.files import Damaged
from common.words import listed, ranks_of
from launch.report import comparable, entries, environments, statistics, table
from launch.report.entries import Comparison, Entry
from launch.report.findings import Findings, Section
from launch.report.questions import (
    controls,
    cost,
    difference,
    disk,
    failed,
    first,
    leaving_horovod,
    machine_speed,
    machines,
    same,
    scaling,
    step,
)
from launch.report.questions.controls import Judgement
from launch.report.questions.failed import Failure
from launch.report.ratio_text import runs_against

# NCCL's name of TCP, in the log of what it has chosen.
NCCL_OVER_TCP = "Socket"
ALONE = "For everything else about a machine, compare its records alone."
OTHER_SEEDS = "backends have different seeds, which need different numbers of epochs: compare seconds per epoch, not times to solution."


class Report(NamedTuple):
    """The content of a report. Its headline has the fastest backend of each comparison and warnings about verdicts; its notes are caveats.

    `warnings` are those of the notes that say why records may not be comparable, and which are left out.
    """

    machine: str
    headline: list[str]
    sections: list[Section]
    notes: list[str]
    comparisons: list[Comparison]
    warnings: Sequence[str] = ()
    controls: Sequence[Judgement] = ()
    failures: Sequence[Failure] = ()

    @property
    def entries(self) -> list[Entry]:
        """The entries of all comparisons."""
        return [entry for comparison in self.comparisons for entry in comparison.entries]

    @property
    def runs(self) -> list[Record]:
        """The records, by comparison, backend, size and repeat."""
        return [record for comparison in self.comparisons for record in comparison.records]

    @property
    def backends(self) -> list[str]:
        """The names of the backends, each once."""
        return list(dict.fromkeys(entry.backend for entry in self.entries))


def collect(paths: Sequence[Path]) -> tuple[list[Record], list[Damaged]]:
    """Returns the records of files and of folders, recursively and by name, and the files that are not records.

    Raises UserError where a path is missing, and where no record is found.
    """
    if not paths:
        raise UserError("which records? Give files or folders, such as results/MACHINE")
    records, damaged = files.collect(paths)
    if not records:
        reason = f"; {damaged[0].path}: {damaged[0].reason}" if damaged else ""
        raise UserError(f"there is no record in {', '.join(map(str, paths))}{reason}")
    return records, damaged


def report_of(records: Sequence[Record], damaged: Sequence[Damaged] = ()) -> Report:
    """Reports on records of one machine or of several, and on files that are not records.

    Raises UserError for records of a machine that are not comparable, or of different training.
    """
    return _of_machines(records, damaged) if len(environments.machines_of(records)) > 1 else _of_machine(records, damaged)


def _of_machine(records: Sequence[Record], damaged: Sequence[Damaged]) -> Report:
    plain, traced = entries.split_traced(records)
    comparable.check(plain)
    comparisons = entries.comparisons(plain)
    not_compared = [record for record in records if not entries.is_compared(record)]

    def each(answer_to: Callable[[Comparison], Findings]) -> Findings:
        findings = [answer_to(comparison) for comparison in comparisons]
        sentences = [sentence for finding in findings for sentence in finding.sentences]
        details = [sentence for finding in findings for sentence in finding.details]
        return Findings(sentences, [table for finding in findings for table in finding.tables], details)

    who_is_first = each(first.answer)
    judged_controls = [judgement for comparison in comparisons for judgement in controls.judgements(comparison, records)]
    failures = failed.failures_of([*comparisons, *entries.comparisons(not_compared)], damaged)
    every_section = [
        Section("first", first.QUESTION, *who_is_first._replace(sentences=[*who_is_first.sentences, *controls.sentences(judged_controls)])),
        Section("difference", difference.QUESTION, *each(difference.answer)),
        Section("leaving", leaving_horovod.QUESTION, *leaving_horovod.answer(comparisons)),
        Section("scaling", scaling.QUESTION, *each(scaling.answer)),
        Section("cost", cost.QUESTION, *cost.answer(comparisons)),
        Section("step", step.QUESTION, *each(step.answer)),
        Section("reading", disk.READING, *disk.reading(comparisons)),
        Section("checkpoints", disk.CHECKPOINTS, *each(disk.checkpoints)),
        Section("mpi", step.IN_MPI, *step.in_mpi(traced)),
        Section("approximate", same.APPROXIMATE, *each(same.approximate)),
        Section("same", same.QUESTION, *each(same.answer)),
        Section("machine_speed", machine_speed.QUESTION, *machine_speed.answer(plain)),
        Section("failed", failed.QUESTION, *failed.answer(failures, len(records) + len(damaged))),
    ]
    sections = [section for section in every_section if section.sentences or section.tables]
    headline = [*map(first.winner, comparisons), *controls.warnings(judged_controls)]
    warnings = [*_left_out(traced), *_warnings(comparisons)]
    notes = [*_notes(comparisons), *warnings]
    return Report(table.machine(plain[0]), headline, sections, notes, comparisons, warnings, judged_controls, failures)


def _of_machines(records: Sequence[Record], damaged: Sequence[Damaged]) -> Report:
    """Reports on several machines: each one's fastest backends beside the others'."""
    plain, traced = entries.split_traced(records)
    records_on = {machine: [record for record in plain if table.machine(record) == machine] for machine in environments.machines_of(plain)}
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
    warnings = _left_out(traced)
    return Report(listed(list(records_on)), headline, sections, [ALONE, *warnings], comparisons, warnings, failures=failures)


def _left_out(traced: Sequence[Record]) -> list[str]:
    """Returns the note on traced records, if there are any."""
    return [f"{len(traced)} of the runs were {entries.SLOWED_DOWN}, and are left out."] if traced else []


def _notes(comparisons: Sequence[Comparison]) -> list[str]:
    all_entries = [entry for comparison in comparisons for entry in comparison.entries]
    records = [record for comparison in comparisons for record in comparison.records]
    notes = [*_machines(records), *_protocols(records)]
    sizes = {len(entry.records) for entry in all_entries}
    few = statistics.MIN_RUNS_WITH_INTERVAL
    if min(sizes) < few:
        notes.append(f"Entries with fewer than {few} runs have no interval; use --repeats {statistics.MIN_RUNS_CONFIDENT}.")
    if num_over_tcp := sum(record.environment.nccl_network == NCCL_OVER_TCP for record in records):
        runs = "1 run" if num_over_tcp == 1 else f"{num_over_tcp} runs"
        notes.append(f"NCCL used TCP between the nodes of {runs}: it found no plugin for a faster network (NCCL_NET).")
    if any(entry.oversubscribed for entry in all_entries):
        notes.append("Runs with more ranks than cores are oversubscribed: they are compared among themselves and do not measure scaling.")
    return notes


def _warnings(comparisons: Sequence[Comparison]) -> list[str]:
    """Returns a sentence on each reason why records of one machine may not be comparable."""
    notes = _other_machines(record for comparison in comparisons for record in comparison.records)
    for comparison in comparisons:
        notes += [f"{comparison.name}, {ranks_of(size)}: {OTHER_SEEDS}" for size in comparison.sizes if _have_other_seeds(comparison, size)]
        values_of = environments.values_of(comparison.records)
        differing = {name: values for name, values in values_of.items() if len(values) > 1}
        notes += [f"{comparison.name}: records differ in {name}: {', '.join(values)}." for name, values in differing.items()]
    return notes


def _protocols(records: Iterable[Record]) -> list[str]:
    """Returns a sentence on those of several matrices that ran the same: when they began, with which seeds, and what at which commit."""
    matrices = entries.matrices(records).values()
    if len(matrices) < 2:
        return []
    begun_of: dict[str, list[str]] = {}
    for matrix in matrices:
        seeds = {record.seed for record in matrix}
        begun_of.setdefault(_protocol(matrix), []).append(f"{matrix[0].started_at} (seeds {min(seeds)} to {max(seeds)})")
    return [f"{'Matrix' if len(begun) == 1 else 'Matrices'} begun at {listed(begun)}: {protocol}." for protocol, begun in begun_of.items()]


def _machines(records: Iterable[Record]) -> list[str]:
    """Returns a sentence on the nodes and the limit of the machine; none on records that do not know it."""
    records = list(records)
    nodes = sorted({environments.describe_node(record.environment) for record in records})
    products = listed(environments.describe_limits(records))
    return [f"Machine: {'; '.join(nodes)}. The fastest matrix product of a rank reaches {products}."] if products else []


def _other_machines(records: Iterable[Record]) -> list[str]:
    """Returns a sentence on each matrix that met another machine than the first one, by the speed of its products."""
    matrices = list(entries.matrices(records).values())
    return [
        f"The matrix begun at {matrix[0].started_at} met another machine than the first one: {apart}."
        for matrix in matrices[1:]
        if (apart := environments.other_products(matrices[0], matrix))
    ]


def _protocol(records: Sequence[Record]) -> str:
    """Describes what a matrix ran, and at which commit."""
    values = environments.values_of(records)
    sizes = {record.num_ranks for record in records}
    num_repeats = max(record.repeat for record in records) + 1
    parts = (
        f"commit {', '.join(values['commit'])}",
        f"{listed([str(size) for size in sorted(sizes)])} {'rank' if sizes == {1} else 'ranks'} of "
        + listed(sorted({record.backend for record in records})),
        runs_against(num_repeats, num_repeats, paired=False),
        *values["turns"],
    )
    return ", ".join(parts)


def _have_other_seeds(comparison: Comparison, size: int) -> bool:
    """Returns whether the backends of a size trained from different seeds."""
    return len({frozenset(record.seed for record in entry.records) for entry in comparison.of_size(size)}) > 1
