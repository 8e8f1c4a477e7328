"""Records -> the answer: questions in order, each with sentences and tables. Pure."""

from typing import NamedTuple

from launch.report import comparable, entries, environments, statistics, widths
from launch.report.questions import approximate, checkpointing, cost, failed, first, quiet, reading, same, scaling, step, where
from launch.report.tables import Section
from launch.report.words import listed, ranks_of, runs_against

OTHER_SEEDS = "backends have different seeds, which need different numbers of epochs: compare seconds per epoch, not times to solution."
# The sections that every report has; others are left out where they have neither sentences nor tables.
ALWAYS = {"first", "scaling", "cost", "same", "quiet", "failed"}


class Answer(NamedTuple):
    """The report's content. `headline`: the fastest backend, one sentence per comparison; `notes`: caveats."""

    machine: str
    headline: list[str]
    sections: list[Section]
    notes: list[str]
    comparisons: list[entries.Comparison]

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

    def of_each(question):
        answers = [question.answer(comparison) for comparison in comparisons]
        return [[part for answer in answers for part in answer[kind]] for kind in (0, 1)]

    answers = {
        "first": (first, of_each(first)),
        "scaling": (scaling, of_each(scaling)),
        "cost": (cost, cost.answer(comparisons)),
        "step": (step, of_each(step)),
        "reading": (reading, reading.answer(comparisons)),
        "checkpoints": (checkpointing, of_each(checkpointing)),
        "where": (where, where.answer(traced)),
        "approximate": (approximate, of_each(approximate)),
        "same": (same, of_each(same)),
        "quiet": (quiet, quiet.answer(plain)),
        "failed": (failed, failed.answer([*comparisons, *entries.comparisons(traced)], damaged)),
    }
    sections = [Section(key, question.QUESTION, *content) for key, (question, content) in answers.items() if key in ALWAYS or any(content)]
    headline = [first.winner(comparison) for comparison in comparisons]
    return Answer(plain[0].settings.machine, headline, sections, _notes(comparisons, traced), comparisons)


def left_out(traced):
    """The note on traced records; empty without any."""
    return [f"{len(traced)} of the runs were {entries.SLOWED_DOWN}, and are left out."] if traced else []


def _notes(comparisons, traced):
    all_entries = [entry for comparison in comparisons for entry in comparison.entries]
    notes = [*left_out(traced), *_protocols([record for entry in all_entries for record in entry.records])]
    sizes = {len(entry.records) for entry in all_entries}
    few = statistics.MIN_RUNS_WITH_INTERVAL
    if min(sizes) < few:
        notes.append(f"Entries with fewer than {few} runs have no interval; use --repeats {statistics.MIN_RUNS_CONFIDENT}.")
    fewest = min((size for size in sizes if size >= few), default=statistics.MIN_RUNS_CONFIDENT)
    if fewest < statistics.MIN_RUNS_CONFIDENT:
        notes.append(
            f"A bootstrap interval, as of a speed-up, from {fewest} runs covers the true ratio at most "
            f"{100 * statistics.coverage(fewest):.0f} % of the time; "
            f"use --repeats {statistics.MIN_RUNS_CONFIDENT}."
        )
    if any(entry.oversubscribed for entry in all_entries):
        notes.append("Entries with more ranks than cores are oversubscribed: they have tables of their own and do not measure scaling.")
    for comparison in comparisons:
        notes += [f"{comparison.name}, {ranks_of(size)}: {OTHER_SEEDS}" for size in comparison.sizes if _have_other_seeds(comparison, size)]
        notes += widths.notes(comparison)
        values_of = environments.values_of(record for entry in comparison.entries for record in entry.records)
        differing = {name: values for name, values in values_of.items() if len(values) > 1}
        notes += [f"{comparison.name}: records differ in {name}: {', '.join(values)}." for name, values in differing.items()]
    return notes


def _protocols(records):
    """A sentence on each of several matrices: what it ran, and at which commit."""
    matrices = entries.matrices(records).values()
    return [_protocol(matrix) for matrix in matrices] if len(matrices) > 1 else []


def _protocol(records):
    values = environments.values_of(records)
    sizes, seeds = ({getattr(record, name) for record in records} for name in ("num_ranks", "seed"))
    num_repeats = max(record.repeat for record in records) + 1
    parts = (
        f"commit {', '.join(values['commit'])}",
        f"{listed([str(size) for size in sorted(sizes)])} {'rank' if sizes == {1} else 'ranks'} of "
        + listed(sorted({record.backend for record in records})),
        f"{runs_against(num_repeats, num_repeats, paired=False)}, seeds {min(seeds)} to {max(seeds)}",
        *values["turns"],
    )
    return f"Matrix begun at {records[0].started_at}: {', '.join(parts)}."


def _have_other_seeds(comparison, size):
    """Whether the backends of a size trained from different seeds."""
    return len({frozenset(record.seed for record in entry.records) for entry in comparison.of_size(size)}) > 1
