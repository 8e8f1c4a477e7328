"""Merging the trace files of a run: ranks are processes, tracks are separate, clocks agree."""

import dataclasses
import gzip
import itertools
import json

import pytest

from common import chrome_trace
from common.errors import UserError
from frameworks.shared.horovod.horovod_timeline import FILE
from launch.trace import sources
from launch.trace.sources import Clock, ClockOfRank, Placed, Source
from launch.trace.timeline import MARGIN_NANOSECONDS, MERGED, gather, merge
from tests.frameworks.test_horovod_timeline import EPOCH, FUSED, NAMES, NEGOTIATED
from tests.support.running import BIN, completed

EPOCH_NANOSECONDS = 1795283289401788 * 1000
# In 2026 an epoch time in nanoseconds needs 61 bits; PyTorch writes a base and small numbers.
TORCH_BASE = 1790857026_000000000
TORCH_START = (EPOCH_NANOSECONDS - TORCH_BASE) / 1000


def span(name, ts, dur, **more):
    return {"ph": "X", "name": name, "ts": ts, "dur": dur} | more


def torch_trace(*events, base=TORCH_BASE):
    return {"schemaVersion": 1, "baseTimeNanoseconds": base, "traceEvents": list(events), "traceName": "x"}


def op(name, after, dur, tid=7, cat="cpu_op", **args):
    """An event of PyTorch's profiler, `after` microseconds from the start of Horovod's timeline."""
    return span(name, TORCH_START + after, dur, cat=cat, pid=7, tid=tid, args=args)


GLOO_ARGS = {"Input type": ["float"], "Input Dims": [[1181066]]}
TORCH_EVENTS = [
    op("ProfilerStep#3", 1000, 4000, cat="user_annotation"),
    op("aten::conv2d", 1100, 500),
    op("gloo:all_reduce", 2000, 900, tid=8, cat="user_annotation", **GLOO_ARGS),
    op("aten::copy_", 2100, 10, tid=8),
    op("gloo:all_reduce", 2950, 100, tid=8, cat="user_annotation", **GLOO_ARGS),
    # What a communication hook blocks for is a collective on the thread that computes.
    op("mpi:all_reduce", 1700, 100, **GLOO_ARGS),
    op("ampere_sgemm", 2500, 100, tid=20, cat="kernel"),
    op("ncclDevKernel_AllReduce_Sum_f32", 2600, 100, tid=21, cat="kernel"),
    {"ph": "i", "name": "[memory]", "s": "t", "pid": 7, "tid": 7, "ts": TORCH_START + 1200, "args": {"Total Allocated": 4096}},
    {"ph": "s", "id": 1, "pid": 7, "tid": 7, "ts": TORCH_START + 1100, "cat": "fwdbwd", "name": "fwdbwd"},
    {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", "ts": 0, "dur": 9e12},
]


def spans_file(folder, rank, origin, meetings):
    """The steps of a rank, one every 2 ms with gaps of 10 microseconds."""
    events = []
    for number in range(5):
        start = number * 2000
        events += [
            span("data", start, 300, pid=0, tid=0, args={"step": number}),
            span("step", start, 1990, pid=0, tid=0, args={"step": number}),
        ]
    chrome_trace.write(folder / f"spans.{rank}.json.gz", events, {"origin_nanoseconds": origin, "meetings": meetings})


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """The trace folder of a run of Horovod and PyTorch on two ranks; rank 1's clock is one second ahead."""
    folder, ahead = tmp_path_factory.mktemp("run"), 10**9
    for rank in (0, 1):
        trace = torch_trace(*TORCH_EVENTS, base=TORCH_BASE + rank * ahead)
        (folder / f"torch.{rank}.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode()))
        # The profiler's step 3 begins 5 microseconds after step 2 of the loop has ended.
        origin = EPOCH_NANOSECONDS + (1000 - 5 - 2 * 2000 - 1990) * 1000 + rank * ahead
        spans_file(folder, rank, origin, [(origin + step * 1000, origin + step * 1000 + 400) for step in range(3)])
    (folder / "horovod_timeline.json").write_text(json.dumps([EPOCH, *NAMES, *NEGOTIATED, *FUSED]))
    return folder


@pytest.fixture(scope="module")
def gathered(run_folder):
    return gather(run_folder)


@pytest.fixture
def events(run_folder, gathered):
    return list(chrome_trace.events(run_folder / MERGED))


def tracks_of(events):
    """Returns {(rank, name of the track): its events without metadata}."""
    names, tracks = {}, {}
    for event in events:
        if event["ph"] == "M":
            if event["name"] == "thread_name":
                names[event["pid"], event["tid"]] = event["args"]["name"]
        else:
            tracks.setdefault((event["pid"], names[event["pid"], event["tid"]]), []).append(event)
    return tracks


def test_a_run_becomes_one_trace(gathered, events):
    assert gathered.problems == []
    assert gathered.horovod.lateness[1].num == 2
    assert len(events) == gathered.num_events
    tracks = tracks_of(events)
    of_each_rank = {
        "data: steps", "compute: PyTorch, thread 7", "compute: PyTorch, thread 8", "compute: memory", "compute: GPU stream 20",
        "collectives: Gloo, thread 8", "collectives: MPI, thread 7",
        "collectives: NCCL, stream 21", "collectives: Horovod: ready on rank 0",
    }  # fmt: skip
    horovod = {f"collectives: Horovod{name}" for name in ("", " negotiation", " negotiation 2")}
    assert tracks.keys() == {(rank, name) for rank in (0, 1) for name in of_each_rank} | {(0, name) for name in horovod}
    assert [event["name"] for event in tracks[1, "collectives: Gloo, thread 8"]] == ["gloo:all_reduce", "gloo:all_reduce"]
    for track in ("collectives: Gloo, thread 8", "collectives: MPI, thread 7"):
        assert tracks[0, track][0]["args"] == {"bytes": 4 * 1181066}
    assert {event["args"]["name"] for event in events if event["name"] == "process_name"} == {"rank 0", "rank 1"}
    names = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert len(names) == len(tracks)
    kinds = [name.split(":")[0] for _, name in sorted(names.items())]
    assert [kind for kind, _ in itertools.groupby(kinds)] == ["data", "compute", "collectives"] * 2


def test_all_clocks_are_aligned(events):
    tracks = tracks_of(events)
    times = {(rank, event["name"]): event["ts"] for (rank, _), events in tracks.items() for event in events if event.get("name") != "step"}
    convolution = times[0, "aten::conv2d"]
    # Horovod's timeline counts from where TORCH_START is; rank 1's clock is a second ahead, and was moved back.
    assert times[0, "ALLREDUCE"] - convolution == pytest.approx(4010 - 1100, abs=0.01)
    assert times[1, "aten::conv2d"] == pytest.approx(convolution, abs=1)
    # Rank 1's readiness is timed by rank 0's clock.
    assert times[1, "ready: grad.bias"] - convolution == pytest.approx(4001 - 1100, abs=0.01)
    assert min(event["ts"] for events in tracks.values() for event in events) >= 0


def test_the_error_of_each_clock_is_in_the_metadata(run_folder, gathered):
    errors = {clock.source: clock.error_microseconds for clock in gathered.clocks}
    assert errors["PyTorch's profiler of rank 1"] == pytest.approx(5, abs=0.5)
    assert errors["Horovod's timeline"] == sources.HOROVOD_ERROR_MICROSECONDS
    assert gathered.ranks[1] == ClockOfRank(pytest.approx(1e6), pytest.approx(0.4))
    metadata = chrome_trace.value(run_folder / "trace.json.gz", "metadata")
    assert metadata["clocks"] == list(map(dataclasses.asdict, gathered.clocks))
    assert metadata["ranks"] == {str(rank): clock._asdict() for rank, clock in gathered.ranks.items()}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("torch.2.txt", "", "no timeline, no profile and no steps"),
        ("horovod_timeline.json", "", "no timeline, no profile and no steps"),
        ("spans.0.json.gz", [1, 2], r"spans\.0\.json\.gz is not a trace: an event is"),
        ("spans.0.json.gz", [{"ph": "X"}], r"spans\.0\.json\.gz has no steps, or damaged ones"),
        ("torch.0.json.gz", torch_trace(*TORCH_EVENTS), r"torch\.0\.json\.gz is left out, since the steps of the rank are not there"),
    ],
)
def test_a_folder_without_traces_or_with_damaged_spans_is_an_error(tmp_path, name, content, message):
    (tmp_path / name).write_text(content and json.dumps(content))
    with pytest.raises(UserError, match=message):
        gather(tmp_path)


def changed(number, **entries):
    """PyTorch's profile, one of its events with other entries; an entry that is None is left out."""
    event = {name: value for name, value in (TORCH_EVENTS[number] | entries).items() if value is not None}
    return torch_trace(*TORCH_EVENTS[:number], event, *TORCH_EVENTS[number + 1 :])


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("torch.0.json.gz", changed(1, ts=0), "1 event is left out, outside the time of the run"),
        ("torch.0.json.gz", torch_trace(*TORCH_EVENTS, base=0), "9 events are left out"),
        ("torch.0.json.gz", changed(1, dur=None), "rank 0: an event is damaged (KeyError('dur')), and the rest is left out"),
        ("torch.0.json.gz", "none", "begins with"),
        ("horovod_timeline.json", [*NAMES, *NEGOTIATED, *FUSED], "has no start time"),
        (
            "horovod_timeline.json",
            json.dumps([EPOCH, *NAMES, *NEGOTIATED, *FUSED])[:-200],
            "is truncated or damaged and was read up to there",
        ),
        ("horovod_timeline.json", [EPOCH, *NAMES, {"ph": "B", "ts": 1, "pid": 1}, *NEGOTIATED], "an event is damaged (KeyError('name'))"),
        ("spans.1.json.gz", {"metadata": {"origin_nanoseconds": EPOCH_NANOSECONDS, "meetings": [3]}, "traceEvents": []}, "has no steps"),
    ],
)
def test_what_is_wrong_with_one_file_is_listed_and_the_others_are_merged(name, content, problem, tmp_path):
    spans_file(tmp_path, 0, EPOCH_NANOSECONDS - 5_000_000, [])
    (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    gathered = gather(tmp_path)
    assert any(problem in text for text in gathered.problems), gathered.problems
    spans = [event["ts"] for event in chrome_trace.events(tmp_path / MERGED) if event["ph"] == "X"]
    assert len(spans) >= 10
    assert max(spans) < 60e6


@pytest.mark.parametrize("ahead", [-500.0, 500.0])
def test_the_trace_starts_at_its_first_event_whichever_clock_is_ahead(tmp_path, ahead):
    of_ranks = [Source(Clock("", 1.0, ""), rank, 10**18, [Placed(rank, "data", "steps", span("step", 20, 1))], 20.0) for rank in (0, 1)]
    merge(tmp_path / "t.json.gz", of_ranks, {1: ClockOfRank(ahead, 1.0)}, [])
    ts = [event["ts"] for event in chrome_trace.events(tmp_path / "t.json.gz") if event["ph"] == "X"]
    assert (min(ts), ts[1] - ts[0]) == (MARGIN_NANOSECONDS / 1000, -ahead)


@pytest.mark.parametrize(
    ("args", "size_bytes"),
    [
        ({"Input type": ["TensorList", "", "Scalar"], "Input Dims": [[[2, 3]], [], []]}, 0),
        ({"Input type": ["double", "float"], "Input Dims": [[2, 3], []]}, 52),
        ({}, 0),
    ],
)
def test_size_of_a_collective(args, size_bytes):
    assert sources.size_bytes(args) == size_bytes


def test_a_folder_with_a_timeline_of_horovod_alone_is_summed_up(tmp_path):
    (tmp_path / FILE).write_text(json.dumps([EPOCH, *NAMES, *NEGOTIATED, *FUSED]))
    done = completed(BIN / "python", "-m", "launch.trace.timeline", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 collectives (1 ALLREDUCE)" in done.stdout
