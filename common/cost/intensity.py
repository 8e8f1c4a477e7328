"""The arithmetic intensity of a training, by formula (Williams et al. 2009, Roofline, doi:10.1145/1498765.1498785)."""

from common import workloads
from common.backends import BASELINE
from common.config import Settings
from common.cost import activations, sharing
from common.model.families import parts_of, training_flops


def flops_per_byte(settings: Settings, samples_per_step: int) -> float | None:
    """Returns the floating-point operations of a rank's step for each byte that it moves, without caches; None for a model without either.

    What the forward pass keeps is written once and read once. Parameters are read in both passes; they and the optimizer state are read and
    written in the update; gradients are written and read.
    """
    model = workloads.workload_of(settings).model
    parts = parts_of(model, activations.sizes_of(settings.precision, "cpu"))
    kept = [part.kept for part in parts]
    num_flops = training_flops(model)
    if None in kept or num_flops is None:
        return None
    state = sharing.whole_bytes(BASELINE, sum(part.num_parameters for part in parts), settings)
    num_bytes = 2 * samples_per_step * sum(filter(None, kept))
    num_bytes += 4 * state["parameters"] + 2 * state["gradients"] + 2 * state["optimizer_state"]
    return samples_per_step * num_flops / num_bytes
