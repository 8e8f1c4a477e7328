"""Horovod's timeline: negotiations and buffers, also in truncated files."""

import pytest

from frameworks.shared.horovod.horovod_timeline import Activity, Negotiation, Operation, read, size_of, start_microseconds

EPOCH = {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": 1795283289401788}}


def named(pid, name):
    return {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}}


def begin(pid, ts, name):
    return {"ph": "B", "name": name, "ts": ts, "pid": pid}


def end(pid, ts, **args):
    return {"ph": "E", "ts": ts, "pid": pid} | ({"args": args} if args else {})


def tick(pid, ts, rank):
    return {"ph": "X", "name": str(rank), "ts": ts, "pid": pid, "dur": 0}


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


SINGLE = [begin(1, 0, "ALLREDUCE"), begin(1, 1, "MPI_ALLREDUCE"), end(1, 2), end(1, 3, dtype="float64", shape="[2]")]
# As with NCCL, where another thread writes the activities: both collectives begin before the first activity.
QUEUED = [begin(1, 10, "QUEUE"), begin(2, 10, "QUEUE"), end(1, 12), end(2, 12)]
TWO_BUFFERS = [
    *(begin(pid, pid, "ALLREDUCE") for pid in (1, 2, 3, 4)),
    *QUEUED, *(event | {"pid": event["pid"] + 2, "ts": event["ts"] + 5} for event in QUEUED),
    *(end(pid, 30 + pid) for pid in (1, 2, 3, 4)),
]  # fmt: skip
WAITING = [
    begin(1, 0, "ALLREDUCE"), begin(2, 0, "ALLREDUCE"),
    begin(1, 1, "WAIT_FOR_DATA"), end(1, 5), begin(2, 5, "WAIT_FOR_DATA"), end(2, 9),
    begin(1, 10, "NCCL_ALLREDUCE"), begin(2, 10, "NCCL_ALLREDUCE"), end(1, 20), end(2, 20), end(1, 21), end(2, 21),
]  # fmt: skip
ONLY_WAITS = [begin(1, 0, "BARRIER"), begin(1, 1, "WAIT_FOR_DATA"), end(1, 2), end(1, 3)]


@pytest.mark.parametrize(
    ("events", "items"),
    [
        ([EPOCH, *NAMES, *NEGOTIATED, *FUSED], [*NEGOTIATIONS, FUSED_OPERATION]),
        # An end without a beginning is dropped.
        ([end(1, 5), *NAMES, *NEGOTIATED, *FUSED], [*NEGOTIATIONS, FUSED_OPERATION]),
        # One after the other is not in one buffer.
        (
            [*SINGLE, *(event | {"pid": 2, "ts": event["ts"] + 10} for event in SINGLE)],
            [
                Operation("ALLREDUCE", 0, 3, ("1",), 16, (Activity("MPI_ALLREDUCE", 1, 2),), True),
                Operation("ALLREDUCE", 10, 13, ("2",), 16, (Activity("MPI_ALLREDUCE", 11, 12),), True),
            ],
        ),
        # Two buffers that are begun at once are separated by their activities.
        (
            TWO_BUFFERS,
            [
                Operation("ALLREDUCE", 1, 32, ("1", "2"), None, (Activity("QUEUE", 10, 12),), True),
                Operation("ALLREDUCE", 3, 34, ("3", "4"), None, (Activity("QUEUE", 15, 17),), True),
            ],
        ),
        # Each tensor of a buffer waits for its own data.
        (
            WAITING,
            [Operation("ALLREDUCE", 0, 21, ("1", "2"), None, (Activity("WAIT_FOR_DATA", 1, 9), Activity("NCCL_ALLREDUCE", 10, 20)), True)],
        ),
        # No buffer.
        (ONLY_WAITS, [Operation("BARRIER", 0, 3, ("1",), None, (Activity("WAIT_FOR_DATA", 1, 2),), True)]),
        ([ONLY_WAITS[0], ONLY_WAITS[-1]], [Operation("BARRIER", 0, 3, ("1",), None, (), True)]),
        # What is open ends with the file.
        (
            [*ONLY_WAITS[:2], begin(2, 9, "NEGOTIATE_BARRIER")],
            [
                Operation("BARRIER", 0, 9, ("1",), None, (Activity("WAIT_FOR_DATA", 1, 9),), False),
                Negotiation("2", "NEGOTIATE_BARRIER", 9, 9, {}, False),
            ],
        ),
    ],
)  # fmt: skip
def test_items_of_a_timeline(events, items):
    assert list(read(events)) == items


@pytest.mark.parametrize("kept", range(len(NEGOTIATED) + len(FUSED) + 1))
def test_a_timeline_may_end_anywhere(kept):
    events = [*NAMES, *(NEGOTIATED + FUSED)[:kept]]
    items = list(read(events))
    last = max((event["ts"] for event in events if "ts" in event), default=0)
    assert all(0 <= item.start <= item.end <= last for item in items)
    operations = [item for item in items if isinstance(item, Operation)]
    names = ("NEGOTIATE_ALLREDUCE", "ALLREDUCE")
    begun = {(event["pid"], event["name"]) for event in events if event["ph"] == "B" and event["name"] in names}
    tensors = {(tensor, operation.name) for operation in operations for tensor in operation.tensors}
    assert len(begun) == len(tensors | {(item.tensor, item.name) for item in items if item not in operations})


@pytest.mark.parametrize(
    ("args", "size_bytes"),
    [
        ({"dtype": "float32", "shape": "[10, 128]"}, 5120),
        ({"dtype": "float64", "shape": "[]"}, 8),
        ({"dtype": "int64", "shape": "[0, 3]"}, 0),
        ({"dtype": "complex64", "shape": "[2]"}, None),
        ({"dtype": "float32", "shape": [2]}, 8),
        ({"dtype": "float32", "shape": 2}, None),
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
