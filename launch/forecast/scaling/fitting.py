"""The model of one backend, from its sizes in the records, and what it rests on in words. Pure."""

from typing import NamedTuple

from common import backends
from common.backends import declared, file_of
from common.config import Settings
from common.errors import UserError
from common.model import pipelining
from launch.forecast.network import algorithms, messages
from launch.forecast.network.algorithms import Machine
from launch.forecast.scaling import growth, measured, model
from launch.forecast.scaling.model import Model


class Fitted(NamedTuple):
    """A Model; how its network was found; and what was assumed, each in words."""

    model: Model
    network: str
    notes: tuple[str, ...]


def sizes_of(compared, backend, plain, chosen=lambda record: True):
    """The Sizes of a backend that are not oversubscribed, from the runs that are chosen, by ascending number of ranks.

    `plain`: see plain_all_reduces.
    """
    own = [entry for entry in compared.entries if entry.backend == backend and not entry.oversubscribed]
    found = [measured.of([record for record in entry.from_start if chosen(record)], plain) for entry in own]
    return sorted((one for one in found if one), key=lambda one: one.num_ranks)


def plain_all_reduces(compared):
    """{(backend, number of ranks): (size in bytes, seconds) of plain all-reduces}, of all Comparisons: the network is the same in all."""
    found = {}
    for entry in (entry for one in compared for entry in one.entries if not entry.oversubscribed):
        points = [point for record in entry.ok if record.step_breakdown for point in measured.plain_of(record)]
        found.setdefault((entry.backend, entry.num_ranks), []).extend(points)
    return found


def settings_of(backend, record):
    """The settings of a run that decide what its backend can train."""
    names = ("workload", "scaling", "batch_size", "accumulate", "last_batch", "pipeline_schedule", "microbatches", "stages")
    return backends.settings_of(backend, Settings(**{name: getattr(record.settings, name) for name in names}))


def why_not(backend):
    """Why there is no model of a backend; None where there is one."""
    own = declared().get(file_of(backend))
    if own and (own.num_servers or (own.model_parallel and not own.pipelined)):
        return "no forecast, since the model is of data parallelism and pipelines"
    return None


def fit(scaling, backend, settings, transport, sizes, wish, held=None):
    """The Fitted of some Sizes. Of a size that is `held` out it uses the plain all-reduces, if the others have none.

    Plain all-reduces are measured apart from training. What a step exchanges is a property of the backend, and so known too.
    """
    names = (wish.algorithm,) if wish.algorithm else algorithms.BY_TRANSPORT[transport or "gloo"]
    all_sizes = sorted([*sizes, *([held] if held else [])], key=lambda one: one.num_ranks)
    found, words = links(sizes, names)
    if not found:
        found, words = links(all_sizes, names)
    given = wish.network and wish.network.messages(transport or "gloo", names[0])
    inside = found.get("inside") or found.get("between") or given
    if inside is None:
        raise UserError(f"the records of {backend} have no all-reduce of two ranks or more; give --network")
    notes = []
    if given is None and "between" not in found:
        notes.append("The network between nodes was not measured and is taken for that inside a node; give --network for another.")
    largest = sizes[-1]
    per_node = wish.ranks_per_node or max(1, largest.num_ranks // largest.num_nodes)
    machine = Machine(per_node, inside, given or found.get("between") or inside)
    source = next((one for one in reversed(all_sizes) if one.exchanges), largest)
    own = declared().get(file_of(backend))
    if own and own.pipelined and own.model_parallel == "all":
        notes.append("Pipelines have the bubble of the formula and equal stages; what passes between stages takes no time.")
        return Fitted(model.fit(sizes, _pipelined(settings, sizes), (), machine, names), "; ".join(words), tuple(notes))
    compute = growth.computing([(one.num_ranks, one.num_ranks // one.num_nodes, one.compute_seconds) for one in sizes], scaling)
    return Fitted(model.fit(sizes, compute, source.exchanges, machine, names), "; ".join(words), tuple(notes))


def _pipelined(settings, sizes):
    """The computation of a pipeline's step at any number of ranks."""
    num = pipelining.num_microbatches(settings)

    def bubble_of(num_ranks):
        return pipelining.bubble_fraction(settings.pipeline_schedule, num_ranks, num)

    return growth.pipelined([(one.num_ranks, one.compute_seconds) for one in sizes], bubble_of)


def links(sizes, names):
    """({'inside' or 'between' nodes: Regimes of a message}, words on how they were found) from the plain all-reduces of Sizes.

    Of each the largest size counts, which is closest to what is forecast.
    """
    found, words = {}, []
    for kind, what in (("inside", "inside a node"), ("between", "between nodes")):
        several = [one for one in sizes if one.num_ranks > 1 and one.plain and (one.num_nodes > 1) == (kind == "between")]
        if several:
            largest = max(several, key=lambda one: one.num_ranks)
            regimes, how = messages.fitted(largest.plain)
            found[kind] = messages.of_messages(regimes, names[0], largest.num_ranks, largest.num_ranks // largest.num_nodes)
            words.append(f"{what}: {how}")
    return found, words
