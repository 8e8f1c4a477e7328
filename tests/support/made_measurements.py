"""Made measurements, for what is computed from them."""

from launch.collectives.measurement import FITTED_IN_PLACE, Measurement, fit

SIZES = [2**power for power in range(3, 24, 2)]
ALPHA_SECONDS = {"mpi": 2e-6, "gloo": 2e-4}


def measurements(collective="all_reduce"):
    """Through two libraries at several sizes, with other alphas and one beta."""
    shared = {"collective": collective, "in_place": collective in FITTED_IN_PLACE, "num_ranks": 2, "num_iterations": 9, "num_wrong": 0}
    return [
        Measurement(library, size_bytes=size, num_elements=size // 4, seconds=_seconds(alpha, size), **shared)
        for library, alpha in ALPHA_SECONDS.items() for size in SIZES
    ]  # fmt: skip


def _seconds(alpha, size):
    return [alpha + beta * size for beta in (3.0e-10, 3.3e-10, 3.6e-10)]


def fits(measured):
    return [fit([measurement for measurement in measured if measurement.library == library]) for library in ALPHA_SECONDS]
