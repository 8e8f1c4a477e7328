"""Fits the model of one backend to its sizes in the records, and describes what it rests on."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from common import backends
from common.backends import declaration_of
from common.config import Settings
from common.errors import UserError
from common.model import model_sizes, pipelining
from common.record.definition import Record
from launch.forecast.network import algorithms, messages
from launch.forecast.network.algorithms import Machine
from launch.forecast.network.hockney import Regime
from launch.forecast.scaling import growth, measured, model
from launch.forecast.scaling.measured import PlainAllReduces, Size
from launch.forecast.scaling.model import Model
from launch.report.entries import Comparison

if TYPE_CHECKING:
    from launch.forecast.scaling.forecasts import Wish


def sizes_of(
    comparison: Comparison, backend: str, plain: PlainAllReduces, is_chosen: Callable[[Record], bool] = lambda record: True
) -> list[Size]:
    """Returns the sizes of a backend that are not oversubscribed, from the chosen runs, by ascending number of ranks."""
    backend_entries = [entry for entry in comparison.entries if entry.backend == backend and not entry.oversubscribed]
    sizes = [measured.of([record for record in entry.from_start if is_chosen(record)], plain) for entry in backend_entries]
    return sorted((size for size in sizes if size), key=lambda size: size.num_ranks)


def plain_all_reduces(comparisons: Iterable[Comparison]) -> PlainAllReduces:
    """Collects the plain all-reduces of all comparisons: the network is the same in all."""
    points_of = {}
    for entry in (entry for comparison in comparisons for entry in comparison.entries if not entry.oversubscribed):
        points = [point for record in entry.ok if record.step_breakdown for point in measured.plain_of(record)]
        points_of.setdefault((entry.backend, entry.num_ranks), []).extend(points)
    return points_of


def settings_of(backend: str, record: Record) -> Settings:
    """Returns the settings of a run that decide what its backend can train."""
    of_batch = ("workload", "scaling", "batch_size", "accumulate", "last_batch", "pipeline_schedule", "microbatches", "stages")
    names = (*of_batch, *model_sizes.FIELDS)
    return backends.settings_of(backend, Settings(**{name: getattr(record.settings, name) for name in names}))


def fit(
    scaling: str, backend: str, settings: Settings, transport: str | None, sizes: Sequence[Size], wish: "Wish", held: Size | None = None
) -> Model:
    """Fits a model to sizes. If they have no plain all-reduces it uses those of the size that is `held` out.

    Plain all-reduces are measured apart from training. What a step exchanges is a property of the backend, and so known too.
    """
    algorithm = algorithms.BY_TRANSPORT[transport or "gloo"]
    all_sizes: list[Size] = sorted([*sizes, held] if held else sizes, key=lambda size: size.num_ranks)
    regimes, origins = links(sizes, algorithm)
    if not regimes:
        regimes, origins = links(all_sizes, algorithm)
    requested = wish.network and wish.network(transport or "gloo")
    inside = regimes.get("inside") or regimes.get("between") or requested
    if inside is None:
        raise UserError(f"the records of {backend} have no all-reduce of two ranks or more; give --network")
    notes = []
    if requested is None and "between" not in regimes:
        notes.append("The network between nodes was not measured and is taken for that inside a node; give --network for another.")
    largest = sizes[-1]
    per_node = wish.ranks_per_node or max(1, largest.num_ranks // largest.num_nodes)
    machine = Machine(per_node, inside, requested or regimes.get("between") or inside)
    points = [(size.num_ranks, size.num_ranks // size.num_nodes, size.compute_seconds) for size in sizes]
    declaration = declaration_of(backend)
    if declaration.pipelined and declaration.model_parallel == "all":
        notes.append("Pipelines have the bubble of the formula and equal stages; what passes between stages takes no time.")
        num = pipelining.microbatches_of(settings)
        compute = growth.pipelined(points, lambda num_ranks: pipelining.bubble_fraction(settings.pipeline_schedule, num_ranks, num))
        exchanges = ()
    else:
        compute = growth.computing(points, scaling)
        exchanges = next((size.exchanges for size in reversed(all_sizes) if size.exchanges), ())
    return model.fit(sizes, compute, exchanges, machine, algorithm)._replace(network="; ".join(origins), notes=tuple(notes))


def links(sizes: Iterable[Size], algorithm: str) -> tuple[dict[str, tuple[Regime, ...]], list[str]]:
    """Derives the regimes of a message 'inside' and 'between' nodes from the plain all-reduces of sizes, and describes how.

    The largest size of each kind counts, which is closest to what is forecast.
    """
    regimes_of, origins = {}, []
    for kind, place in (("inside", "inside a node"), ("between", "between nodes")):
        several = [size for size in sizes if size.num_ranks > 1 and size.plain and (size.num_nodes > 1) == (kind == "between")]
        if several:
            largest = max(several, key=lambda size: size.num_ranks)
            regimes, origin = messages.fitted(largest.plain)
            regimes_of[kind] = messages.of_messages(regimes, algorithm, largest.num_ranks, largest.num_ranks // largest.num_nodes)
            origins.append(f"{place}: {origin}")
    return regimes_of, origins
