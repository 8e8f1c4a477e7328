"""JSON holds what was measured."""

import json

import pytest

from common.process.ranks import Ranks
from launch.collectives import output
from launch.collectives.measurement import Measurement, fit
from launch.collectives.options import Collectives

SIZES = [2**power for power in range(3, 24, 2)]
ALPHA_SECONDS = {"mpi": 2e-6, "gloo": 2e-4}
MEASUREMENTS = [
    Measurement(library, "all_reduce", True, 2, size, size // 4, [alpha + beta * size for beta in (3.0e-10, 3.3e-10, 3.6e-10)], 9, 0)
    for library, alpha in ALPHA_SECONDS.items() for size in SIZES
]  # fmt: skip
FITS = [fit([measurement for measurement in MEASUREMENTS if measurement.library == library]) for library in ALPHA_SECONDS]
COPIES = {size: [1e-10 * size + 1e-7] for size in SIZES}


def test_the_json_has_measurements_and_fits():
    ranks = Ranks(0, 2, 0, 2, "torchrun")
    written = output.Output(Collectives(machine="here"), ranks, {}, num_nodes=1, copies=COPIES, versions={"nccl": "2.27.3"})
    text = output.as_json(written.document(MEASUREMENTS, FITS))
    document = json.loads(text)
    assert (document["launcher"], document["versions"]["nccl"]) == ("torchrun", "2.27.3")
    assert {"torch", "mpi4py", "python"} <= document["versions"].keys()
    json.dumps(document, allow_nan=False)
    assert [{name: entry[name] for name in Measurement._fields} for entry in document["measurements"]] == [
        measurement._asdict() for measurement in MEASUREMENTS
    ]
    first = document["measurements"][0]
    assert first["low_seconds"] <= first["median_seconds"] <= first["high_seconds"]
    assert first["bus_bytes_per_second"] == pytest.approx(8 / first["median_seconds"])
    assert document["memory_copy"][0] == {"size_bytes": 8, "seconds": COPIES[8]}
    assert [(fit["library"], fit["in_place"], len(fit["regimes"])) for fit in document["fits"]] == [("mpi", True, 1), ("gloo", True, 1)]
    regime = document["fits"][1]["regimes"][0]
    assert (regime["alpha_seconds"], regime["beta_seconds_per_byte"]) == pytest.approx((2e-4, 3.3e-10))
    # A line for each measurement, so that files can be compared and read.
    assert text.count("\n") > len(MEASUREMENTS)


def test_a_barrier_has_no_bandwidth():
    entry = output.entry(Measurement("mpi", "barrier", False, 2, 0, 0, [1e-6], 10, 0))
    assert (entry["median_seconds"], entry["algorithm_bytes_per_second"], entry["bus_bytes_per_second"]) == (1e-6, None, None)
