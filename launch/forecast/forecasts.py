"""Records -> forecasts: of each backend, workload and kind of scaling, at the sizes that are asked for. Pure."""

from typing import NamedTuple

from common import backends
from common.errors import UserError
from launch.forecast import fitting, held_out, measured, rows, second_opinion
from launch.forecast.held_out import HeldOut
from launch.forecast.model import Model
from launch.report import comparable


class Subject(NamedTuple):
    """The forecasts of one backend. `about`: workload and scaling; `network`: how it was found; `knee`: the number of ranks where
    efficiency falls below rows.KNEE, None if it does not; `notes`: what was assumed; `impossible`: {size: why it cannot train there}."""

    about: str
    backend: str
    model: Model
    network: str
    measured: list[measured.Size]
    held_out: list[HeldOut]
    forecasts: list[rows.Forecast]
    knee: int | None
    opinion: second_opinion.Opinion
    notes: tuple[str, ...]
    impossible: dict[int, str]
    on_gpu: bool
    has_target: bool


def of(compared, wish):
    """(Subjects, sentences on what is left out) of Comparisons. Raises UserError where nothing can be forecast."""
    _expect_something(compared)
    plain = fitting.plain_all_reduces(compared)
    subjects, left_out, problems = [], [], []
    for one in compared:
        for backend in dict.fromkeys(entry.backend for entry in one.entries):
            if backends.has_one_rank(backend):
                continue
            sizes = fitting.sizes_of(one, backend, plain)
            if reason := fitting.why_not(backend):
                left_out.append(f"{one.name}, {backend}: {reason}.")
            elif len(sizes) < 2:
                named = f"one size, {sizes[0].num_ranks}" if sizes else "no size with a step breakdown and a core for each rank"
                left_out.append(f"{one.name}, {backend}: no forecast, since there is {named}.")
            else:
                try:
                    subjects.append(_subject(one, backend, sizes, plain, wish))
                except UserError as problem:
                    problems.append(problem)
                    left_out.append(f"{one.name}, {backend}: no forecast, since {problem}.")
    if not subjects:
        few = "these records have one size of each backend; a forecast takes two or more, to be tested on what it was not fitted to"
        raise problems[0] if problems else UserError(few)
    return subjects, left_out


def _expect_something(compared):
    """Raises UserError where no run can tell anything."""
    known = [entry for one in compared for entry in one.entries if not backends.has_one_rank(entry.backend) and entry.ok]
    if not known:
        raise UserError("these records have no completed run of a distributed backend; train one at two sizes, such as 1 and 2")
    fair = [entry for entry in known if not entry.oversubscribed]
    if not fair:
        raise UserError(
            "all of these runs were oversubscribed (more ranks than cores), and show no scaling; train with a core for each rank"
        )
    if not any(run.get("step_breakdown") for entry in fair for run in entry.ok):
        raise UserError("these records have no step breakdown; train without --no-step-breakdown, --timeline and --trace")


def _subject(compared, backend, sizes, plain, wish):
    entry = compared.entry(backend, sizes[-1].num_ranks)
    run = entry.ok[0]
    settings = fitting.settings_of(backend, run)

    def fit(some, held=None):
        return fitting.fit(compared.scaling, backend, settings, entry.transport, some, wish, held)

    found = fit(sizes)
    tested = held_out.of_sizes(sizes, fit) + held_out.of_seeds(*_by_parity(compared, backend, plain), fit)
    case = rows.Case(compared, backend, settings, found.model, sizes, tested, second_opinion.of(sizes), run, wish)
    asked = {size: case.problem(size) for size in wish.ranks if size not in {one.num_ranks for one in sizes}}
    impossible = {size: problem for size, problem in asked.items() if problem}
    forecasts = [rows.measured_row(case, one) for one in sizes] + [rows.row(case, size) for size in asked if size not in impossible]
    return Subject(
        compared.name, backend, found.model, found.network, sizes, tested, sorted(forecasts, key=lambda one: one.num_ranks),
        rows.knee(case), case.opinion, found.notes, impossible, comparable.device_of(run) == "cuda", compared.target is not None,
    )  # fmt: skip


def _by_parity(compared, backend, plain):
    """The Sizes of even and of odd repeats, which have different seeds; two empty lists where a size has only one kind."""
    halves = [fitting.sizes_of(compared, backend, plain, lambda run, parity=parity: run["repeat"] % 2 == parity) for parity in (0, 1)]
    return halves if [one.num_ranks for one in halves[0]] == [one.num_ranks for one in halves[1]] else ([], [])
