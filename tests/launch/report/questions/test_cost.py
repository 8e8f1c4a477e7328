"""Where the time and the memory go."""

import pytest

from launch.report.findings import MIB
from tests.support.answers import line, lines, section
from tests.support.made_records import made

# The table after that of test_choice.py.
COSTS = 1
MEMORY = "peak memory per rank (MiB)"


def test_costs_are_trimmed_means():
    records = [
        made(repeat=repeat, init_seconds=seconds, peak_memory_bytes=memory * MIB)
        for repeat, seconds, memory in ((0, 1.0, 100), (1, 9.0, 300), (2, 2.0, 150))
    ]
    row = line(records, "cost", table=COSTS)
    assert (row["launch (s)"], row["import (s)"], row["init (s)"], row["load (s)"]) == (0.25, 1.0, 2.0, 0.5)
    assert (row["train (s)"], row["evaluate (s)"], row[MEMORY], row["median step (ms)"]) == (8.0, 1.0, 150.0, 2000.0)


@pytest.mark.parametrize(
    ("changes", "increase"), [({}, pytest.approx(20.0)), ({"scaling": "strong"}, None), ({"oversubscribed": True}, None)]
)
def test_the_step_increase_is_for_weak_scaling_without_oversubscription(changes, increase):
    records = [made(step_seconds=[0.1] * 4, **changes), made(num_ranks=2, step_seconds=[0.1, 0.12, 0.12, 0.5], **changes)]
    assert lines(records, "cost", table=COSTS)[1]["step increase over own 1 rank (ms)"] == increase


def test_quantities_without_measurement_are_named():
    assert section([made()], "cost").sentences[-1] == "Energy: not measured."
    assert "measured" not in section([made(energy_joules=50.0)], "cost").sentences[-1]


HELD = {
    "after_forward": {"parameters": [3 * MIB, MIB], "gradients": [0, 0], "optimizer_state": [MIB, 2 * MIB]},
    "after_backward": {"parameters": [MIB, MIB], "gradients": [4 * MIB, 3 * MIB], "optimizer_state": [MIB, 2 * MIB]},
    "after_step": {"parameters": [MIB, MIB], "gradients": [0, 0], "optimizer_state": [MIB, 2 * MIB]},
}
GPU_MEMORY = {"peak_allocated_bytes": [MIB, 3 * MIB], "peak_reserved_bytes": [None, None], "used_bytes": [5 * MIB, 2 * MIB]}


@pytest.mark.parametrize(
    ("measured", "values"),
    [
        ({"energy_joules": 50.0}, {"energy (J)": 50.0}),
        # Of the rank with most.
        ({"gpu_memory_by_rank": GPU_MEMORY}, {"peak GPU memory allocated (MiB)": 3.0, "used on the GPU (MiB)": 5.0}),
        # Of the rank and the point where it is most.
        ({"tensor_bytes_by_rank": HELD}, {"parameters (MiB)": 3.0, "gradients (MiB)": 4.0, "optimizer state (MiB)": 2.0}),
    ],
)
def test_what_only_some_runs_measure_is_shown_where_one_has_it(measured, values):
    records = [made(backend="single"), made(num_ranks=2, **measured)]
    without, with_values = lines(records, "cost", table=COSTS)
    assert {name: with_values[name] for name in values} == values
    assert {without[name] for name in values} == {None}
    assert not {*values} & {*section(records[:1], "cost").tables[COSTS].headings}
    assert section(records, "cost").tables[COSTS].headings[-len(values) :] == [*values]
