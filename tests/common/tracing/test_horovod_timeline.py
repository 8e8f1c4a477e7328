"""Horovod's timeline: waits, late ranks, buffers and cycles, also in truncated files."""

import itertools
import json

import pytest

from common.tracing import chrome
from common.tracing.horovod_timeline import (
    Activity,
    Cycle,
    Lateness,
    Negotiation,
    Operation,
    Wait,
    describe,
    read,
    size_of,
    start_microseconds,
    summarize,
)
from frameworks.shared.horovod.horovod import timeline_variables

EPOCH = {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": 1795283289401788}}


def named(pid, name):
    return {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}}


def begin(pid, ts, name):
    return {"ph": "B", "name": name, "ts": ts, "pid": pid}


def end(pid, ts, **args):
    return {"ph": "E", "ts": ts, "pid": pid} | ({"args": args} if args else {})


def tick(pid, ts, rank):
    return {"ph": "X", "name": str(rank), "ts": ts, "pid": pid, "dur": 0}


def cycle(ts):
    return {"ph": "i", "name": "CYCLE_START", "ts": ts, "s": "g"}


NAMES = [named(1, "grad.bias"), named(2, "grad.weight")]
# Two tensors of which rank 1 has the first 3 ms late, reduced in one buffer.
NEGOTIATED = [
    begin(1, 1000, "NEGOTIATE_ALLREDUCE"), tick(1, 1001, 0), begin(2, 1002, "NEGOTIATE_ALLREDUCE"), tick(2, 1003, 0),
    tick(1, 4001, 1), end(1, 4002), tick(2, 4003, 1), end(2, 4004),
]  # fmt: skip
FUSED = [
    begin(1, 4010, "ALLREDUCE"), begin(2, 4011, "ALLREDUCE"),
    begin(1, 4020, "MEMCPY_IN_FUSION_BUFFER"), begin(2, 4021, "MEMCPY_IN_FUSION_BUFFER"), end(1, 4030), end(2, 4031),
    begin(1, 4040, "MPI_ALLREDUCE"), begin(2, 4041, "MPI_ALLREDUCE"), end(1, 5000), end(2, 5001),
    end(1, 5010, dtype="float32", shape="[128]"), end(2, 5011, dtype="float32", shape="[128, 9216]"),
]  # fmt: skip
FUSED_OPERATION = Operation(
    "ALLREDUCE", 4010, 5011, ("grad.bias", "grad.weight"), 4 * (128 + 128 * 9216),
    (Activity("MEMCPY_IN_FUSION_BUFFER", 4020, 4031), Activity("MPI_ALLREDUCE", 4040, 5001)), True,
)  # fmt: skip
NEGOTIATIONS = [
    Negotiation("grad.bias", "NEGOTIATE_ALLREDUCE", 1000, 4002, {0: 1001, 1: 4001}, True),
    Negotiation("grad.weight", "NEGOTIATE_ALLREDUCE", 1002, 4004, {0: 1003, 1: 4003}, True),
]


def test_two_tensors_in_one_buffer():
    assert list(read([EPOCH, *NAMES, *NEGOTIATED, *FUSED])) == [*NEGOTIATIONS, FUSED_OPERATION]


def test_tensors_that_are_reduced_one_after_the_other_are_not_in_one_buffer():
    one = [begin(1, 0, "ALLREDUCE"), begin(1, 1, "MPI_ALLREDUCE"), end(1, 2), end(1, 3, dtype="float64", shape="[2]")]
    other = [event | {"pid": 2, "ts": event["ts"] + 10} for event in one]
    found = list(read([*NAMES, *one, *other]))
    assert [operation.tensors for operation in found] == [("grad.bias",), ("grad.weight",)]
    assert [operation.size_bytes for operation in found] == [16, 16]


def test_two_buffers_begun_at_once_are_separated_by_their_activities():
    # As with NCCL, where another thread writes the activities: both collectives begin before the first activity.
    begun = [begin(pid, pid, "ALLREDUCE") for pid in (1, 2, 3, 4)]
    first = [begin(1, 10, "QUEUE"), begin(2, 10, "QUEUE"), end(1, 12), end(2, 12)]
    second = [event | {"pid": event["pid"] + 2, "ts": event["ts"] + 5} for event in first]
    ends = [end(pid, 30 + pid) for pid in (1, 2, 3, 4)]
    found = list(read([*begun, *first, *second, *ends]))
    assert [operation.tensors for operation in found] == [("1", "2"), ("3", "4")]
    assert [operation.size_bytes for operation in found] == [None, None]


def test_each_tensor_of_a_buffer_waits_for_its_own_data():
    events = [
        begin(1, 0, "ALLREDUCE"), begin(2, 0, "ALLREDUCE"),
        begin(1, 1, "WAIT_FOR_DATA"), end(1, 5), begin(2, 5, "WAIT_FOR_DATA"), end(2, 9),
        begin(1, 10, "NCCL_ALLREDUCE"), begin(2, 10, "NCCL_ALLREDUCE"), end(1, 20), end(2, 20), end(1, 21), end(2, 21),
    ]  # fmt: skip
    (found,) = read([*NAMES, *events])
    assert found.tensors == ("grad.bias", "grad.weight")
    assert found.activities == (Activity("WAIT_FOR_DATA", 1, 9), Activity("NCCL_ALLREDUCE", 10, 20))


@pytest.mark.parametrize("tensor_only_waits", [True, False])
def test_an_operation_without_a_buffer(tensor_only_waits):
    waits = [begin(1, 1, "WAIT_FOR_DATA"), end(1, 2)] if tensor_only_waits else []
    (found,) = read([begin(1, 0, "BARRIER"), *waits, end(1, 3)])
    assert (found.name, found.start, found.end, len(found.activities)) == ("BARRIER", 0, 3, tensor_only_waits)


def test_cycles_count_the_tensors_that_they_brought():
    events = [cycle(0), cycle(1000), *NEGOTIATED, *FUSED, cycle(6000), cycle(7000)]
    found = [one for one in read(events) if isinstance(one, Cycle)]
    assert found == [Cycle(0, 1000, 0), Cycle(1000, 6000, 2), Cycle(6000, 7000, 0)]


@pytest.mark.parametrize("kept", range(len(NEGOTIATED) + len(FUSED) + 1))
def test_a_timeline_may_end_anywhere(kept):
    events = [*NAMES, *(NEGOTIATED + FUSED)[:kept]]
    found = list(read(events))
    last = max((event["ts"] for event in events if "ts" in event), default=0)
    assert all(0 <= one.start <= one.end <= last for one in found)
    assert all(
        one.start <= activity.start <= activity.end <= one.end for one in found if isinstance(one, Operation) for activity in one.activities
    )
    begun = {
        (event["pid"], event["name"]) for event in events if event["ph"] == "B" and event["name"] in ("NEGOTIATE_ALLREDUCE", "ALLREDUCE")
    }
    reported = {(tensor, one.name) for one in found for tensor in (one.tensors if isinstance(one, Operation) else (one.tensor,))}
    assert len(reported) == len(begun)
    assert summarize(found).num_unfinished == sum(not one.finished for one in found)


def test_a_timeline_may_begin_anywhere():
    """An end without a beginning is dropped."""
    assert list(read([end(1, 5), *NAMES, *NEGOTIATED, *FUSED])) == [*NEGOTIATIONS, FUSED_OPERATION]


@pytest.mark.parametrize(
    ("args", "size_bytes"),
    [
        ({"dtype": "float32", "shape": "[10, 128]"}, 5120),
        ({"dtype": "float64", "shape": "[]"}, 8),
        ({"dtype": "int64", "shape": "[0, 3]"}, 0),
        ({"dtype": "complex64", "shape": "[2]"}, None),
        ({}, None),
    ],
)
def test_size_of_a_tensor(args, size_bytes):
    assert size_of(args) == size_bytes


@pytest.mark.parametrize(
    ("events", "microseconds"), [([EPOCH, *FUSED], 1795283289401788), ([named(1, "a"), EPOCH], 1795283289401788), (FUSED, None), ([], None)]
)
def test_when_a_timeline_began(events, microseconds):
    assert start_microseconds(events) == microseconds


@pytest.mark.parametrize(
    ("ticks", "lateness"),
    [
        ([(0, 0), (1, 3000)], {1: Lateness(1, 0.003, 0.003)}),
        ([(1, 0), (0, 1001)], {0: Lateness(1, 0.001001, 0.001001)}),
        # Within one cycle rank 0 receives all ranks in their order.
        ([(0, 0), (1, 5), (2, 900)], {}),
        ([(0, 0), (2, 2000), (1, 8000)], {1: Lateness(1, 0.008, 0.008)}),
        ([(0, 0)], {}),
        ([], {}),
    ],
)
def test_the_last_rank_is_late_unless_all_are_ready_in_one_cycle(ticks, lateness):
    events = [begin(1, 0, "NEGOTIATE_ALLREDUCE"), *(tick(1, ts, rank) for rank, ts in ticks), end(1, 9000)]
    summary = summarize(read(events))
    assert summary.lateness == lateness
    assert (summary.num_negotiations, summary.num_compared) == (1, len(ticks) > 1)


def test_summary_counts_a_buffer_once():
    found = summarize(read([*NAMES, cycle(0), *NEGOTIATED, *FUSED, cycle(6000), cycle(8000)]))
    assert found.waits == {"grad.bias": Wait(1, 0.003002, 0.003002), "grad.weight": Wait(1, 0.003002, 0.003002)}
    assert found.tensors_per_buffer == {2: 1}
    assert found.max_buffer_bytes == found.total_bytes == FUSED_OPERATION.size_bytes
    assert found.operation_seconds == pytest.approx({"ALLREDUCE": 0.001001})
    assert found.activity_seconds == pytest.approx({"MEMCPY_IN_FUSION_BUFFER": 11e-6, "MPI_ALLREDUCE": 961e-6})
    assert (found.num_cycles, found.num_used_cycles, found.mean_cycle_seconds) == (2, 1, 0.004)
    assert found.lateness == {1: Lateness(2, 0.006, 0.003)}


def test_summary_without_cycles():
    found = summarize(read([*NEGOTIATED, *FUSED]))
    assert (found.num_cycles, found.num_used_cycles, found.mean_cycle_seconds) == (None, None, None)


def test_summary_as_lines_of_text():
    lines = describe(summarize(read([*NAMES, cycle(0), *NEGOTIATED, *FUSED, cycle(6000), begin(1, 7000, "NEGOTIATE_ALLREDUCE")])))
    text = "\n".join(lines)
    assert "1 collectives (1 ALLREDUCE) of 2.0 tensors on average" in text
    assert "rank 1 was last 2 times, by 3.00 ms on average" in text
    assert "known for 2 of 3 negotiations" in text
    assert "1 cycles of 6.00 ms on average, 100% not idle" in text
    assert "1 not finished" in text
    assert any("0 negotiations" in line for line in describe(summarize([])))


def test_older_and_newer_layouts_are_read_alike(tmp_path):
    """Older: one event per line, each with a comma, never closed. Newer: many per line, closed."""
    events = [EPOCH, *NAMES, *NEGOTIATED, *FUSED]
    (tmp_path / "older").write_text("[\n" + "".join(json.dumps(event) + ",\n" for event in events))
    (tmp_path / "newer").write_text("[\n" + ",".join(map(json.dumps, events)) + "]")
    older, newer = (list(read(chrome.events(tmp_path / name))) for name in ("older", "newer"))
    assert older == newer == [*NEGOTIATIONS, FUSED_OPERATION]


@pytest.mark.parametrize(("mark_cycles", "every_tick"), list(itertools.product([False, True], repeat=2)))
def test_variables(tmp_path, mark_cycles, every_tick):
    found = timeline_variables(tmp_path, mark_cycles, every_tick)
    assert found.pop("HOROVOD_TIMELINE") == f"{tmp_path}/horovod_timeline.json"
    assert found.pop("HOROVOD_TIMELINE_MARK_CYCLES", None) == ("1" if mark_cycles else None)
    assert found.pop("HOROVOD_CACHE_CAPACITY", None) == ("0" if every_tick else None)
    assert found == {}
