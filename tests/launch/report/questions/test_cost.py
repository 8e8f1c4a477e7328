"""Where the time and the memory go, and the table to choose a backend by: what was counted, and what theory expects."""

import pytest

from common.config import Settings
from common.workloads import gradient_bytes
from launch.report.findings import MB, MIB
from tests.support.answers import line, section
from tests.support.made_records import made, step_breakdown, tensor_bytes

MEMORY = "peak memory per rank (MiB)"


def test_costs_are_trimmed_means():
    records = [
        made(repeat=repeat, init_seconds=seconds, peak_memory_bytes=memory * MIB)
        for repeat, seconds, memory in ((0, 1.0, 100), (1, 9.0, 300), (2, 2.0, 150))
    ]
    row = line(records, "cost")
    # Launch takes 0.25 s and import 1 s.
    assert (row["start-up (s)"], row[MEMORY]) == (3.25, 150.0)


def test_quantities_without_measurement_are_named():
    assert section([made()], "cost").sentences[-1] == "Energy: not measured."
    assert "measured" not in section([made(energy_joules=50.0)], "cost").sentences[-1]


# Of the CNN in float32, in MB and in MiB.
P_MB, P_MIB = 4.799528, 4_799_528 / MIB
ONE_LAYER_MB = gradient_bytes(Settings("transformer", layers=1)) / MB
STATE, STATE_EXPECTED = "state per rank (MiB)", "expected (MiB)"
SENT, SENT_EXPECTED, BY = "sent per step (MB)", "by formula (MB)", "by collective (MB)"
EXPOSED, CHANGE = "exposed share of a step (%)", "change to the program"
BY_RANK = tensor_bytes((3 * MIB, 2 * MIB, MIB), (3 * MIB, 3 * MIB, MIB))


GPU_MEMORY = {"peak_allocated_bytes": [MIB, 3 * MIB], "peak_reserved_bytes": [None, None], "used_bytes": [5 * MIB, 2 * MIB]}
# Of a workload that is not known here.
LATER = made(num_ranks=2) | {"workload": "later", "settings": made(num_ranks=2)["settings"] | {"workload": "later"}}


def broken_down(num_ranks=2, **operations):
    breakdown = step_breakdown(num_ranks=num_ranks)
    return breakdown | {"operations": breakdown["operations"] | operations}


@pytest.mark.parametrize(
    ("record", "values"),
    [
        (
            made(num_ranks=2, tensor_bytes_by_rank=BY_RANK, step_breakdown=step_breakdown(compute=6.0, exposed=3.0)),
            {
                "backend": "ddp", "ranks": 2, "seconds per epoch": 4.5, "training": "exact", CHANGE: "wrap in DistributedDataParallel",
                # At one point, on the rank that holds most.
                STATE: 7.0, STATE_EXPECTED: pytest.approx(3 * P_MIB),
                # An all-reduce of 4 MB, and a gather to which each of two ranks contributes 1 MB.
                SENT: 5.0, BY: "all-reduce 4.00, all-gather 1.00", SENT_EXPECTED: pytest.approx(P_MB),
                # One run has no interval.
                EXPOSED: None,
            },
        ),
        (
            made(num_ranks=2),
            {STATE: None, SENT: None, EXPOSED: None, BY: None, STATE_EXPECTED: pytest.approx(3 * P_MIB)},
        ),
        # A backend or a workload that is not known here has no theory.
        (made(num_ranks=2) | {"backend": "own"}, {STATE_EXPECTED: None, SENT_EXPECTED: None, CHANGE: None}),
        (LATER, {SENT_EXPECTED: None}),
        # Sizes of a Transformer that are given count.
        (made(num_ranks=2, workload="transformer", settings={"layers": 1}), {SENT_EXPECTED: pytest.approx(ONE_LAYER_MB)}),
        (made(backend="weight_averaging", num_ranks=2, exact=False), {"training": "approximate"}),
        # A collective of a few bytes is not named.
        (
            made(num_ranks=2, step_breakdown=broken_down(all_reduce={"num_calls": 2.0, "num_bytes": 4.0})),
            {BY: "all-gather 1.00", SENT: pytest.approx(1.000004)},
        ),
        (made(step_breakdown=broken_down(1) | {"operations": {}}), {SENT: 0}),
        (
            made(flops_per_second_per_rank=3e10, peak_flops_per_second=2e11, share_of_peak=0.15, tokens_per_second=640.0),
            {"TFLOP/s per rank": 0.03, "share of peak (%)": pytest.approx(15.0), "tokens/s": 640.0},
        ),
        # Of the rank with most.
        (
            made(num_ranks=2, energy_joules=50.0, gpu_memory_by_rank=GPU_MEMORY),
            {"energy (J)": 50.0, "peak GPU memory allocated (MiB)": 3.0, "TFLOP/s per rank": None, "share of peak (%)": None},
        ),
    ],
)  # fmt: skip
def test_a_row_has_what_a_chooser_asks_for(record, values):
    row = line([record], "cost")
    assert {name: row[name] for name in values} == values


def test_the_sentence_is_of_the_largest_size_whose_ranks_have_cores():
    records = [made(), made(num_ranks=2), made(num_ranks=8, oversubscribed=True)]
    assert next(text for text in section(records, "cost").sentences if "startup" in text).startswith("cnn, weak scaling, 2 ranks: ")
