"""Records -> the answer: questions in order, each with sentences and tables. Pure."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from launch.report import comparable, entries, statistics
from launch.report.questions import approximate, checkpointing, cost, failed, first, quiet, reading, repeated, same, scaling, step, where
from launch.report.tables import Section


class Answer(NamedTuple):
    """The report's content. `headline`: the fastest backend, one sentence per comparison; `notes`: caveats. `charts`: {key of a section:
    its charts}, of sections whose charts are not drawn from the comparisons."""

    machine: str
    headline: list[str]
    sections: list[Section]
    notes: list[str]
    comparisons: list[entries.Comparison]
    charts: Mapping = MappingProxyType({})

    @property
    def runs(self):
        """The records, by comparison, backend, size and repeat."""
        return [record for comparison in self.comparisons for entry in comparison.entries for record in entry.records]

    @property
    def backends(self):
        """The names of the backends, each once."""
        return list(dict.fromkeys(entry.backend for comparison in self.comparisons for entry in comparison.entries))


def answer(records, damaged=()):
    """The Answer of records and of files that are not records (collect.Damaged). Raises UserError for records that are not comparable."""
    plain, traced = entries.split_traced(records)
    comparable.check(plain)
    comparisons = entries.comparisons(plain)
    sections = [
        Section("first", first.QUESTION, *first.answer(comparisons)),
        *_if_any("repeated", repeated, comparisons),
        Section("scaling", scaling.QUESTION, *scaling.answer(comparisons)),
        Section("cost", cost.QUESTION, *cost.answer(comparisons)),
        *_if_any("step", step, comparisons),
        *_if_any("reading", reading, comparisons),
        *_if_any("checkpoints", checkpointing, comparisons),
        *_if_any("where", where, where.profiled(traced)),
        *_if_any("approximate", approximate, comparisons),
        Section("same", same.QUESTION, *same.answer(comparisons)),
        Section("quiet", quiet.QUESTION, *quiet.answer(plain)),
        Section("failed", failed.QUESTION, *failed.answer([*comparisons, *entries.comparisons(traced)], damaged)),
    ]
    notes = _notes(comparisons, len(traced))
    return Answer(plain[0].settings.machine, [first.winner(comparison) for comparison in comparisons], sections, notes, comparisons)


def _if_any(key, question, subjects):
    """The Section of a module of questions in a list; an empty list where it has neither sentences nor tables."""
    content = question.answer(subjects)
    return [Section(key, question.QUESTION, *content)] if any(content) else []


def _notes(comparisons, num_traced):
    notes = []
    if num_traced:
        notes.append(f"{num_traced} of the runs were {entries.SLOWED_DOWN}, and are left out.")
    sizes = {len(entry.records) for comparison in comparisons for entry in comparison.entries}
    if 1 in sizes:
        notes.append(f"Entries with one run have no interval; use --repeats {statistics.MIN_RUNS_CONFIDENT}.")
    fewest = min(sizes - {1}, default=statistics.MIN_RUNS_CONFIDENT)
    if fewest < statistics.MIN_RUNS_CONFIDENT:
        notes.append(
            f"A bootstrap interval, as of a speed-up, from {fewest} runs covers the true ratio at most "
            f"{100 * statistics.coverage(fewest):.0f} % of the time; "
            f"use --repeats {statistics.MIN_RUNS_CONFIDENT}."
        )
    if any(entry.oversubscribed for comparison in comparisons for entry in comparison.entries):
        notes.append("Entries with more ranks than cores are oversubscribed: they have tables of their own and do not measure scaling.")
    for comparison in comparisons:
        differing = {what: values for what, values in _environments(comparison).items() if len(values) > 1}
        notes += [f"{comparison.name}: records differ in {what}: {', '.join(values)}." for what, values in differing.items()]
    return notes


def _environments(comparison):
    """{what: its values} of the environment, which should be the same for all runs of a comparison."""
    values_of = {what: set() for what in ("launcher", "MPI", "commit", "processor", "cores", "GPU", "driver", "Python", "turns")}
    for record in (record for entry in comparison.entries for record in entry.records):
        environment = record.environment
        values_of["commit"].add((environment.git_commit or "unknown")[:8] + ("+changes" if environment.git_changed else ""))
        values_of["launcher"].add(record.launcher)
        if environment.mpi:
            values_of["MPI"].add(" ".join(environment.mpi.split()))
        values_of["processor"].add(environment.cpu)
        values_of["cores"].add(str(environment.num_cores))
        if gpu := environment.gpu:
            values_of["GPU"] |= {gpu.model} if gpu.model else set()
            values_of["driver"] |= {gpu.driver} if gpu.driver else set()
        values_of["Python"].add(environment.python)
        if record.num_turns is not None:
            values_of["turns"].add("side by side" if record.num_turns else "one after the other")
        for name, version in environment.packages.items():
            values_of.setdefault(name, set()).add(version)
    return {what: sorted(values) for what, values in values_of.items()}
