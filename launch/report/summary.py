"""Records -> the answer: questions in their order, each with its sentences and its tables. Pure."""

from typing import NamedTuple

from launch.report import comparable, entries, statistics
from launch.report.questions import cost, failed, first, same, scaling, step, where
from launch.report.tables import Section


class Answer(NamedTuple):
    """What the records say. `headline`: which backend was first, one sentence a comparison; `notes`: what to know when reading it."""

    machine: str
    headline: list[str]
    sections: list[Section]
    notes: list[str]
    comparisons: list[entries.Comparison]


def answer(found, damaged=()):
    """The Answer of records, and of files that hold none (collect.Damaged). Raises UserError for records that may not be mixed."""
    plain, traced = entries.divided(found)
    comparable.check(plain)
    compared = entries.comparisons(plain)
    steps, profiles = step.answer(compared), where.profiled(traced)
    sections = [
        Section("first", first.QUESTION, *first.answer(compared)),
        Section("scaling", scaling.QUESTION, *scaling.answer(compared)),
        Section("cost", cost.QUESTION, *cost.answer(compared)),
        *([Section("step", step.QUESTION, *steps)] if any(steps) else []),
        *([Section("where", where.QUESTION, *where.answer(profiles))] if profiles else []),
        Section("same", same.QUESTION, *same.answer(compared)),
        Section("failed", failed.QUESTION, *failed.answer([*compared, *entries.comparisons(traced)], damaged)),
    ]
    notes = _notes(compared, len(traced))
    return Answer(plain[0]["settings"]["machine"], [first.winner(one) for one in compared], sections, notes, compared)


def _notes(compared, num_traced):
    notes = []
    if num_traced:
        notes.append(f"{num_traced} of the runs were traced (--timeline, --trace), and are left out.")
    sizes = {len(entry.runs) for one in compared for entry in one.entries}
    if 1 in sizes:
        notes.append(f"Where an entry is of one run, nothing says how sure a comparison with it is: use --repeats {statistics.SURE_FROM}.")
    fewest = min(sizes - {1}, default=statistics.SURE_FROM)
    if fewest < statistics.SURE_FROM:
        notes.append(
            f"An interval from {fewest} runs cannot be wider than what was seen: it holds the true ratio at best about "
            f"{100 * statistics.coverage(fewest):.0f} times in 100, not 95; --repeats {statistics.SURE_FROM} makes it so."
        )
    if any(entry.oversubscribed for one in compared for entry in one.entries):
        notes.append("Where ranks outnumber cores they share them; such runs are set apart, and are no measure of scaling.")
    for one in compared:
        differing = {what: values for what, values in _surroundings(one).items() if len(values) > 1}
        notes += [f"{one.name}: the records differ in {what}: {', '.join(values)}." for what, values in differing.items()]
    return notes


def _surroundings(compared):
    """{what: its different values} of what should be the same around all runs of a comparison."""
    around = {what: set() for what in ("launcher", "MPI", "commit", "processor", "cores", "Python")}
    for record in (run for entry in compared.entries for run in entry.runs):
        environment = record["environment"]
        around["commit"].add((environment["git_commit"] or "unknown")[:8] + ("+changes" if environment.get("git_changed") else ""))
        around["launcher"].add(record["launcher"])
        if environment["mpi"]:
            around["MPI"].add(" ".join(environment["mpi"].split()))
        around["processor"].add(environment["cpu"])
        around["cores"].add(str(environment["cores"]))
        around["Python"].add(environment["python"])
        for name, version in environment["packages"].items():
            around.setdefault(name, set()).add(version)
    return {what: sorted(values) for what, values in around.items()}
