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
        return [run for compared in self.comparisons for entry in compared.entries for run in entry.runs]

    @property
    def backends(self):
        """The names of the backends, each once."""
        return list(dict.fromkeys(entry.backend for compared in self.comparisons for entry in compared.entries))


def answer(records, damaged=()):
    """The Answer of records and of files that are not records (collect.Damaged). Raises UserError for records that are not comparable."""
    plain, traced = entries.split_traced(records)
    comparable.check(plain)
    compared = entries.comparisons(plain)
    again, price, disk = repeated.answer(compared), approximate.answer(compared), reading.answer(compared)
    files = checkpointing.answer(compared)
    steps, profiles = step.answer(compared), where.profiled(traced)
    sections = [
        Section("first", first.QUESTION, *first.answer(compared)),
        *([Section("repeated", repeated.QUESTION, *again)] if any(again) else []),
        Section("scaling", scaling.QUESTION, *scaling.answer(compared)),
        Section("cost", cost.QUESTION, *cost.answer(compared)),
        *([Section("step", step.QUESTION, *steps)] if any(steps) else []),
        *([Section("reading", reading.QUESTION, *disk)] if any(disk) else []),
        *([Section("checkpoints", checkpointing.QUESTION, *files)] if any(files) else []),
        *([Section("where", where.QUESTION, *where.answer(profiles))] if profiles else []),
        *([Section("approximate", approximate.QUESTION, *price)] if any(price) else []),
        Section("same", same.QUESTION, *same.answer(compared)),
        Section("quiet", quiet.QUESTION, *quiet.answer(plain)),
        Section("failed", failed.QUESTION, *failed.answer([*compared, *entries.comparisons(traced)], damaged)),
    ]
    notes = _notes(compared, len(traced))
    return Answer(plain[0].settings.machine, [first.winner(one) for one in compared], sections, notes, compared)


def _notes(compared, num_traced):
    notes = []
    if num_traced:
        notes.append(f"{num_traced} of the runs were {entries.SLOWED_DOWN}, and are left out.")
    sizes = {len(entry.runs) for one in compared for entry in one.entries}
    if 1 in sizes:
        notes.append(f"Entries with one run have no interval; use --repeats {statistics.MIN_RUNS_CONFIDENT}.")
    fewest = min(sizes - {1}, default=statistics.MIN_RUNS_CONFIDENT)
    if fewest < statistics.MIN_RUNS_CONFIDENT:
        notes.append(
            f"A bootstrap interval, as of a speed-up, from {fewest} runs covers the true ratio at most "
            f"{100 * statistics.coverage(fewest):.0f} % of the time; "
            f"use --repeats {statistics.MIN_RUNS_CONFIDENT}."
        )
    if any(entry.oversubscribed for one in compared for entry in one.entries):
        notes.append("Entries with more ranks than cores are oversubscribed: they have tables of their own and do not measure scaling.")
    for one in compared:
        differing = {what: values for what, values in _environments(one).items() if len(values) > 1}
        notes += [f"{one.name}: records differ in {what}: {', '.join(values)}." for what, values in differing.items()]
    return notes


def _environments(compared):
    """{what: its values} of the environment, which should be the same for all runs of a comparison."""
    around = {what: set() for what in ("launcher", "MPI", "commit", "processor", "cores", "GPU", "driver", "Python", "turns")}
    for record in (run for entry in compared.entries for run in entry.runs):
        environment = record.environment
        around["commit"].add((environment.git_commit or "unknown")[:8] + ("+changes" if environment.git_changed else ""))
        around["launcher"].add(record.launcher)
        if environment.mpi:
            around["MPI"].add(" ".join(environment.mpi.split()))
        around["processor"].add(environment.cpu)
        around["cores"].add(str(environment.num_cores))
        if gpu := environment.gpu:
            around["GPU"] |= {gpu.model} if gpu.model else set()
            around["driver"] |= {gpu.driver} if gpu.driver else set()
        around["Python"].add(environment.python)
        if record.num_turns is not None:
            around["turns"].add("side by side" if record.num_turns else "one after the other")
        for name, version in environment.packages.items():
            around.setdefault(name, set()).add(version)
    return {what: sorted(values) for what, values in around.items()}
