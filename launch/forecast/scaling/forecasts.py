"""Records -> forecasts: of each backend, workload and kind of scaling, at the sizes that are asked for. Pure."""

from common import backends
from common.errors import UserError
from launch.forecast.scaling import fitting, held_out
from launch.forecast.scaling.rows import Subject


def of(comparisons, wish):
    """(Subjects, sentences on what is left out) of Comparisons. Raises UserError where nothing can be forecast."""
    _expect_something(comparisons)
    plain = fitting.plain_all_reduces(comparisons)
    subjects, left_out, problems = [], [], []
    for comparison in comparisons:
        for backend in dict.fromkeys(entry.backend for entry in comparison.entries):
            if backends.has_one_rank(backend):
                continue
            sizes = fitting.sizes_of(comparison, backend, plain)
            if reason := fitting.why_not(backend):
                left_out.append(f"{comparison.name}, {backend}: {reason}.")
            elif len(sizes) < 2:
                named = f"one size, {sizes[0].num_ranks}" if sizes else "no size with a step breakdown and a core for each rank"
                left_out.append(f"{comparison.name}, {backend}: no forecast, since there is {named}.")
            else:
                try:
                    subjects.append(_subject(comparison, backend, sizes, plain, wish))
                except UserError as problem:
                    problems.append(problem)
                    left_out.append(f"{comparison.name}, {backend}: no forecast, since {problem}.")
    if not subjects:
        few = "these records have one size of each backend; a forecast takes two or more, to be tested on what it was not fitted to"
        raise problems[0] if problems else UserError(few)
    return subjects, left_out


def _expect_something(comparisons):
    """Raises UserError where no run can tell anything."""
    completed = [entry for comparison in comparisons for entry in comparison.entries if entry.ok]
    distributed = [entry for entry in completed if not backends.has_one_rank(entry.backend)]
    if not distributed:
        raise UserError("these records have no completed run of a distributed backend; train one at two sizes, such as 1 and 2")
    fair = [entry for entry in distributed if not entry.oversubscribed]
    if not fair:
        raise UserError(
            "all of these runs were oversubscribed (more ranks than cores), and show no scaling; train with a core for each rank"
        )
    if not any(record.step_breakdown for entry in fair for record in entry.ok):
        raise UserError("these records have no step breakdown; train without --no-step-breakdown, --timeline and --trace")


def _subject(comparison, backend, sizes, plain, wish):
    entry = comparison.entry(backend, sizes[-1].num_ranks)
    record = entry.ok[0]
    settings = fitting.settings_of(backend, record)

    def fit(fitted_sizes, held=None):
        return fitting.fit(comparison.scaling, backend, settings, entry.transport, fitted_sizes, wish, held)

    tests = held_out.of_sizes(sizes, fit) + held_out.of_seeds(*_by_parity(comparison, backend, plain), fit)
    return Subject(comparison, backend, settings, fit(sizes), sizes, tests, record, wish)


def _by_parity(comparison, backend, plain):
    """The Sizes of even and of odd repeats, which have different seeds; two empty lists where a size has only one kind."""
    halves = [fitting.sizes_of(comparison, backend, plain, lambda record, parity=parity: record.repeat % 2 == parity) for parity in (0, 1)]
    return halves if [size.num_ranks for size in halves[0]] == [size.num_ranks for size in halves[1]] else ([], [])
