"""Merging the trace files of a run: ranks are processes, tracks are separate, clocks agree."""

import gzip
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from common.tracing import chrome, sources
from common.tracing.clocks import Offset
from common.tracing.horovod_timeline import read
from common.tracing.placed import Lanes, Placed, Source
from launch.trace import merge
from launch.trace.timeline import Collectives, counted, files, gather
from tests.common.tracing.test_horovod_timeline import EPOCH, FUSED, NAMES, NEGOTIATED, begin, cycle

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
    op("ampere_sgemm", 2500, 100, tid=20, cat="kernel"),
    op("ncclDevKernel_AllReduce_Sum_f32", 2600, 100, tid=21, cat="kernel"),
    {"ph": "i", "name": "[memory]", "s": "t", "pid": 7, "tid": 7, "ts": TORCH_START + 1200, "args": {"Total Allocated": 4096}},
    {"ph": "s", "id": 1, "pid": 7, "tid": 7, "ts": TORCH_START + 1100, "cat": "fwdbwd", "name": "fwdbwd"},
    {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", "ts": 0, "dur": 9e12},
]


def test_what_a_pipeline_sends_is_on_another_track_than_what_its_thread_computes(tmp_path):
    chrome_file = tmp_path / "torch.0.json"
    events = [
        op("ProfilerStep#3", 0, 900, cat="user_annotation"),
        op("gloo:send", 10, 500, cat="user_annotation"),
        op("aten::mm", 300, 400),
    ]
    chrome_file.write_text(json.dumps(torch_trace(*events)))
    found = [(placed.kind, placed.track, placed.event["name"]) for placed in sources.torch(chrome_file, 0).events]
    assert found == [
        ("compute", "PyTorch, thread 7", "ProfilerStep#3"), ("collectives", "Gloo, thread 7", "gloo:send"),
        ("compute", "PyTorch, thread 7", "aten::mm"),
    ]  # fmt: skip


def spans_file(folder, rank, origin, meetings):
    """The steps of a rank, one every 2 ms with gaps of 10 microseconds."""
    events = []
    for number in range(5):
        start = number * 2000
        events += [
            span("data", start, 300, pid=0, tid=0, args={"step": number}),
            span("step", start, 1990, pid=0, tid=0, args={"step": number}),
        ]
    chrome.write(folder / f"spans.{rank}.json.gz", events, {"origin_nanoseconds": origin, "rank": rank, "meetings": meetings})


@pytest.fixture
def run_folder(tmp_path):
    """The trace folder of a run of Horovod and PyTorch on two ranks; rank 1's clock is one second ahead."""
    ahead = 10**9
    for rank in (0, 1):
        (tmp_path / f"torch.{rank}.json.gz").write_bytes(
            gzip.compress(json.dumps(torch_trace(*TORCH_EVENTS, base=TORCH_BASE + rank * ahead)).encode())
        )
        # The profiler's step 3 begins 5 microseconds after step 2 of the loop has ended.
        origin = EPOCH_NANOSECONDS + (1000 - 5 - 2 * 2000 - 1990) * 1000 + rank * ahead
        spans_file(tmp_path, rank, origin, [(origin + step * 1000, origin + step * 1000 + 400) for step in range(3)])
    (tmp_path / "horovod_timeline.json").write_text(json.dumps([EPOCH, *NAMES, cycle(0), *NEGOTIATED, *FUSED, cycle(6000)]))
    return tmp_path


def tracks_of(events):
    """{(rank, name of the track): its events without metadata}."""
    names, found = {}, {}
    for event in events:
        if event["ph"] == "M":
            if event["name"] == "thread_name":
                names[event["pid"], event["tid"]] = event["args"]["name"]
        else:
            found.setdefault((event["pid"], names[event["pid"], event["tid"]]), []).append(event)
    return found


def test_a_run_becomes_one_trace(run_folder):
    found = gather(run_folder)
    assert found["problems"] == []
    events = list(chrome.events(run_folder / "trace.json.gz"))
    assert len(events) == found["num_events"]
    tracks = tracks_of(events)
    own = {
        "data: steps", "compute: PyTorch, thread 7", "compute: memory", "compute: GPU stream 20", "collectives: Gloo, thread 8",
        "collectives: NCCL, stream 21", "collectives: Horovod: ready on rank 0",
    }  # fmt: skip
    horovod = {
        "collectives: Horovod",
        "collectives: Horovod cycles",
        "collectives: Horovod negotiation",
        "collectives: Horovod negotiation 2",
    }
    assert tracks.keys() == {(rank, name) for rank in (0, 1) for name in own} | {(0, name) for name in horovod}
    assert [event["name"] for event in tracks[1, "collectives: Gloo, thread 8"]] == ["gloo:all_reduce", "aten::copy_"]
    assert tracks[0, "collectives: Gloo, thread 8"][0]["args"] == {"bytes": 4 * 1181066}
    assert {event["args"]["name"] for event in events if event["name"] == "process_name"} == {"rank 0", "rank 1"}
    named = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert len(named) == len(tracks)
    kinds = [name.split(":")[0] for _, name in sorted(named.items())]
    assert [kind for kind, _ in itertools.groupby(kinds)] == ["data", "compute", "collectives"] * 2


def test_all_clocks_are_aligned(run_folder):
    gather(run_folder)
    tracks = tracks_of(chrome.events(run_folder / "trace.json.gz"))
    times = {(rank, event["name"]): event["ts"] for (rank, _), events in tracks.items() for event in events if event.get("name") != "step"}
    convolution = times[0, "aten::conv2d"]
    # Horovod's timeline counts from where TORCH_START is; rank 1's clock is a second ahead, and was moved back.
    assert times[0, "ALLREDUCE"] - convolution == pytest.approx(4010 - 1100, abs=0.01)
    assert times[1, "aten::conv2d"] == pytest.approx(convolution, abs=1)
    # Rank 1's readiness is timed by rank 0's clock.
    assert times[1, "ready: grad.bias"] - convolution == pytest.approx(4001 - 1100, abs=0.01)
    assert min(event["ts"] for events in tracks.values() for event in events) >= 0


def test_the_error_of_each_clock_is_in_the_metadata(run_folder):
    found = gather(run_folder)
    errors = {clock["source"]: clock["error_microseconds"] for clock in found["clocks"]}
    assert errors["PyTorch's profiler of rank 1"] == pytest.approx(5, abs=0.5)
    assert errors["Horovod's timeline"] == sources.HOROVOD_ERROR_MICROSECONDS
    assert found["ranks"]["1"] == {"clock_ahead_microseconds": pytest.approx(1e6), "error_microseconds": pytest.approx(0.4)}
    metadata = chrome.value(run_folder / "trace.json.gz", "metadata")
    assert (metadata["clocks"], metadata["ranks"]) == (found["clocks"], found["ranks"])


def test_the_summary_of_a_run(run_folder):
    found = gather(run_folder)
    assert found["steps"][1]["step_seconds"] == pytest.approx([0.00199] * 5)
    assert found["steps"][1]["data_seconds"] == pytest.approx([0.0003] * 5)
    assert found["horovod"].lateness[1].num_last == 2
    gloo = Collectives(1, pytest.approx(0.0009), 4 * 1181066)
    fused = Collectives(1, pytest.approx(0.001001), 4 * (128 + 128 * 9216))
    assert found["collectives"] == {0: {"gloo:all_reduce": gloo, "ALLREDUCE": fused}, 1: {"gloo:all_reduce": gloo}}


def test_collectives_add_up():
    events = [span("gloo:all_reduce", 0, 1000 * dur, pid=1, tid=1, args={"bytes": 8 * dur}) for dur in (1, 2)]
    found = {}
    assert list(counted([*events, span("op", 0, 1, pid=1, tid=1)], found))[:2] == events
    assert found == {1: {"gloo:all_reduce": Collectives(2, 0.003, 24)}}


def test_a_truncated_timeline_is_merged_and_reported(run_folder):
    timeline = run_folder / "horovod_timeline.json"
    timeline.write_text(timeline.read_text()[:-200])
    found = gather(run_folder)
    assert ["is truncated or damaged and was read up to there" in problem for problem in found["problems"]] == [True]
    assert found["horovod"].num_unfinished > 0
    assert chrome.check(chrome.events(run_folder / "trace.json.gz")).num_problems == 0


def test_a_timeline_without_a_start_time_is_summed_up_all_the_same(run_folder):
    (run_folder / "horovod_timeline.json").write_text(json.dumps([*NAMES, *NEGOTIATED, *FUSED]))
    found = gather(run_folder)
    assert ["has no start time" in problem for problem in found["problems"]] == [True]
    assert found["horovod"].num_negotiations == 2
    assert not any("Horovod" in name for _, name in tracks_of(chrome.events(run_folder / "trace.json.gz")))


@pytest.mark.parametrize("left", [[], ["horovod_timeline.json"]])
def test_a_folder_without_traces_is_an_error(tmp_path, left):
    for name in left:
        (tmp_path / name).touch()
    with pytest.raises(UserError, match="no timeline, no profile and no steps"):
        gather(tmp_path)


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([1, 2], "not a trace: an event is"),
        ([{"ph": "X"}], "a wrong or missing entry .'name'"),
        ([span("step", "0", 1, args={"step": 0})], "a wrong or missing entry"),
        ([span("nap", 0, 1, args={"step": 0})], "a wrong or missing entry .'nap'"),
    ],
)
def test_damaged_spans_are_an_error(tmp_path, spans, message):
    (tmp_path / "spans.0.json.gz").write_text(json.dumps(spans))
    with pytest.raises(UserError, match=rf"spans\.0\.json\.gz is .*{message}"):
        gather(tmp_path)


def test_files_are_found_by_rank(tmp_path):
    for name in ("torch.10.json.gz", "torch.2.json.gz", "spans.0.json.gz", "tensorflow.1.json.gz", "torch.2.txt", "trace.json.gz"):
        (tmp_path / name).touch()
    found = files(tmp_path)
    assert list(found["torch"]) == [2, 10]
    assert {kind: len(of_ranks) for kind, of_ranks in found.items()} == {"spans": 1, "torch": 2, "tensorflow": 1}


def test_mpi_calls_are_placed_by_their_own_clock(tmp_path):
    calls = [begin(5, 10, "MPI_Allreduce") | {"tid": 3}, {"ph": "E", "ts": 30, "pid": 5, "tid": 3}, begin(5, 40, "MPI_Bcast") | {"tid": 3}]
    horovod = Source("h", 0, EPOCH_NANOSECONDS, 0.0, None, "", sources.horovod_events(read([*NAMES, *NEGOTIATED, *FUSED])))
    mpi = sources.mpi(calls, 0, 0.0, 0.1, EPOCH_NANOSECONDS + 4_000_000)
    merge.write(tmp_path / "t.json.gz", [horovod, mpi])
    events = list(chrome.events(tmp_path / "t.json.gz"))
    assert chrome.check(events).num_problems == 0
    found = tracks_of(events)[0, "MPI: thread 3"]
    assert [(event["name"], event["ts"], event["dur"]) for event in found] == [("MPI_Allreduce", 4010, 20), ("MPI_Bcast", 4040, 0)]


def test_mpi_calls_may_count_from_the_epoch(tmp_path):
    """A double holds an epoch time in microseconds to a quarter of one."""
    calls = [span("MPI_Wait", 1795283289401788.25, 5, pid=0, tid=0)]
    mpi = sources.mpi(calls, 0, 1795283289401788.0, 1.0)
    merge.write(tmp_path / "t.json.gz", [mpi])
    (found,) = tracks_of(chrome.events(tmp_path / "t.json.gz"))[0, "MPI: thread 0"]
    assert found["ts"] == pytest.approx(0.25, abs=0.25)


def test_threads_of_one_name_have_tracks_of_their_own(tmp_path):
    """TensorFlow names several threads `python`."""
    named = [{"ph": "M", "name": "thread_name", "pid": 0, "tid": tid, "args": {"name": "python"}} for tid in (4, 5)]
    chrome.write(
        tmp_path / "p.json.gz", [*named, *(span("op", 0, 9 + tid, pid=0, tid=tid) for tid in (4, 5))], {"origin_nanoseconds": 10**18}
    )
    merge.write(tmp_path / "t.json.gz", [sources.tensorflow(tmp_path / "p.json.gz", 0)])
    tracks = tracks_of(chrome.events(tmp_path / "t.json.gz"))
    assert {name: len(events) for (_, name), events in tracks.items()} == {"compute: python": 1, "compute: python, thread 5": 1}


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=40))
def test_spans_in_one_lane_never_overlap(spans):
    lanes, placed = Lanes(), {}
    for start, end in sorted(((start, start + dur) for start, dur in spans), key=lambda found: found[1]):
        placed.setdefault(lanes.lane_for(start, end), []).append((start, end))
    for in_lane in placed.values():
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(in_lane))


def test_a_lane_is_used_again():
    lanes = Lanes()
    assert [lanes.lane_for(*found) for found in ((0, 5), (1, 6), (5, 8), (6, 9))] == [0, 1, 0, 1]


@pytest.mark.parametrize("ahead", [-500.0, 0.0, 500.0])
def test_the_trace_starts_at_0_whichever_clock_is_ahead(tmp_path, ahead):
    each = [Source(f"{rank}", rank, 10**18, 20.0, 1.0, "", [Placed(rank, "data", "steps", span("step", 20, 1))]) for rank in (0, 1)]
    merge.write(tmp_path / "t.json.gz", each, {1: Offset(ahead, 1.0)})
    ts = [event["ts"] for event in chrome.events(tmp_path / "t.json.gz") if event["ph"] == "X"]
    assert (min(ts), ts[1] - ts[0]) == (0, -ahead)


@pytest.mark.parametrize(
    ("args", "size_bytes"),
    [
        (GLOO_ARGS, 4 * 1181066),
        ({"Input type": ["TensorList", "", "Scalar"], "Input Dims": [[[2, 3]], [], []]}, 0),
        ({"Input type": ["double", "float"], "Input Dims": [[2, 3], []]}, 52),
        ({}, 0),
    ],
)
def test_size_of_a_collective(args, size_bytes):
    assert sources.size_bytes(args) == size_bytes


def test_what_a_communication_hook_blocks_for_is_a_collective_on_the_thread_that_computes(tmp_path):
    path = tmp_path / "torch.0.json.gz"
    events = torch_trace(op("aten::conv2d", 1100, 500), op("mpi:all_reduce", 2000, 900, **GLOO_ARGS), op("powersgd:bucket", 3000, 5))
    path.write_bytes(gzip.compress(json.dumps(events).encode()))
    placed = {one.event["name"]: one for one in sources.torch(path, 0).events}
    assert (placed["aten::conv2d"].kind, placed["aten::conv2d"].track) == ("compute", "PyTorch, thread 7")
    assert (placed["mpi:all_reduce"].kind, placed["mpi:all_reduce"].track) == ("collectives", "MPI, thread 7")
    assert placed["mpi:all_reduce"].event["args"] == {"bytes": 4 * 1181066}
    assert (placed["powersgd:bucket"].kind, placed["powersgd:bucket"].track) == ("collectives", "PowerSGD, thread 7")
