"""Where the time and the memory go."""

import pytest

from launch.report.tables import MIB
from tests.support.answers import line, lines, section
from tests.support.made_records import made

# The table after that of test_choice.py.
COSTS = 1
MEMORY = "peak memory per rank (MiB)"


def test_costs_are_typical_values():
    records = [
        made(repeat=repeat, init_seconds=seconds, peak_memory_bytes=memory * 2**20)
        for repeat, seconds, memory in ((0, 1.0, 100), (1, 9.0, 300), (2, 2.0, 150))
    ]
    row = line(records, "cost", table=COSTS)
    assert (row["launch (s)"], row["import (s)"], row["init (s)"], row["load (s)"]) == (0.25, 1.0, 2.0, 0.5)
    assert (row["train (s)"], row["evaluate (s)"], row[MEMORY], row["median step (ms)"]) == (8.0, 1.0, 150.0, 2000.0)


def test_the_step_increase_is_for_weak_scaling_without_oversubscription():
    def over(**changes):
        records = [made(step_seconds=[0.1] * 4, **changes), made(num_ranks=2, step_seconds=[0.1, 0.12, 0.12, 0.5], **changes)]
        return lines(records, "cost", table=COSTS)[1]["step increase over own 1 rank (ms)"]

    assert over() == pytest.approx(20.0)
    assert over(scaling="strong") is None
    assert over(oversubscribed=True) is None


def test_quantities_without_measurement_are_named():
    sentences = section([made()], "cost").sentences
    assert sentences[-2:] == ["Exposed communication: not measured.", "Energy: not measured."]
    records = [made() | {"energy_joules": 50.0}, made(backend="single")]
    assert section(records, "cost").sentences[-1] == "Exposed communication: not measured."
    assert [row["energy (J)"] for row in lines(records, "cost", table=COSTS)] == ["not measured", 50.0]


def test_gpu_memory_is_that_of_the_rank_with_most_and_shown_where_some_run_has_it():
    memory = {"peak_allocated_bytes": [MIB, 3 * MIB], "peak_reserved_bytes": [None, None], "used_bytes": [5 * MIB, 2 * MIB]}
    records = [made(backend="single"), made(num_ranks=2, gpu_memory_by_rank=memory)]
    row = line(records, "cost", table=COSTS, ranks=2)
    assert (row["peak GPU memory allocated (MiB)"], row["used on the GPU (MiB)"]) == (3.0, 5.0)
    assert "reserved (MiB)" not in row
    assert line(records, "cost", table=COSTS, ranks=1)["used on the GPU (MiB)"] == "not measured"
    assert "used on the GPU (MiB)" not in line(records[:1], "cost", table=COSTS)


def test_memory_is_that_of_the_rank_and_the_point_where_it_is_most():
    def point(parameters, gradients, state):
        return {"parameters": parameters, "gradients": gradients, "optimizer_state": state}

    held = {
        "after_forward": point([3 * MIB, MIB], [0, 0], [MIB, 2 * MIB]),
        "after_backward": point([MIB, MIB], [4 * MIB, 3 * MIB], [MIB, 2 * MIB]),
        "after_step": point([MIB, MIB], [0, 0], [MIB, 2 * MIB]),
    }
    records = [made(backend="single"), made(num_ranks=2, tensor_bytes_by_rank=held)]
    row = line(records, "cost", table=COSTS, ranks=2)
    assert [row[f"{name} (MiB)"] for name in ("parameters", "gradients", "optimizer state")] == [3.0, 4.0, 2.0]
    assert line(records, "cost", table=COSTS, ranks=1)["parameters (MiB)"] == "not measured"
    assert "parameters (MiB)" not in line(records[:1], "cost", table=COSTS)
