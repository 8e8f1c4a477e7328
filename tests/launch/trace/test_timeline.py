"""Real runs of two ranks: their timelines and profiles are merged into one valid trace with all tracks and aligned clocks."""

import time

import pytest

from common import chrome_trace
from common.data import sharding
from common.training.loop import NUM_WARMUP_STEPS
from common.training.step_breakdown import ACTIVE, WAIT, WARMUP
from frameworks.shared.horovod import horovod_timeline
from launch.trace import profile, timeline
from tests.launch.trace.test_merge import tracks_of
from tests.support.made_records import valid
from tests.support.running import BIN, completed, matrix, records_in
from tests.support.tracing import Traced, library

pytestmark = pytest.mark.matrix

# As many as make the whole schedule of the profiler.
NUM_STEPS = WAIT + WARMUP + ACTIVE
EPOCH = {sharding.STEPS_VARIABLE: str(NUM_STEPS)}
# Of the CNN, in tensors.
NUM_PARAMETERS = 1_199_882
NUM_TENSORS = 8
TORCH = {"torch.0.json.gz", "torch.0.txt", "torch.1.json.gz", "torch.1.txt"}
SPANS = {"spans.0.json.gz", "spans.1.json.gz"}
HOROVOD = {horovod_timeline.FILE}


def misplaced(events):
    """Pairs of spans on one track that overlap without nesting by more than the rounding to nanoseconds."""
    pairs, open_until = [], []
    for event in sorted(events, key=lambda span: (span["ts"], -span["dur"])):
        end = event["ts"] + event["dur"]
        while open_until and open_until[-1][0] <= event["ts"] + 0.01:
            open_until.pop()
        if open_until and end > open_until[-1][0] + 0.01:
            pairs.append((open_until[-1][1], event["name"]))
        open_until.append((end, event["name"]))
    return pairs


def spans_of(tracks, kind, rank):
    """The spans on a rank's tracks of a kind."""
    of_kind = [events for (owner, name), events in tracks.items() if owner == rank and name.startswith(kind)]
    return [event for events in of_kind for event in events if event["ph"] == "X"]


def valid_trace(folder, parts, compute, collective, seconds):
    """Returns (Timeline, tracks) of the trace of a run that took so many seconds, which is valid, with these parts."""
    with_horovod = parts >= HOROVOD
    assert {path.name for path in folder.iterdir()} >= SPANS | parts
    gathered = timeline.gather(folder)
    assert gathered.problems == []
    assert (gathered.horovod is not None) == with_horovod
    events = list(chrome_trace.events(folder / timeline.MERGED))
    tracks = tracks_of(events)
    steps = {rank: spans_of(tracks, "data: steps", rank) for rank in (0, 1)}
    # What bounds the clocks happens within a step, however busy the machine is.
    longest_step = max(span["dur"] for of_rank in steps.values() for span in of_rank)
    for rank in (0, 1):
        assert len(steps[rank]) == 2 * NUM_STEPS
        assert compute is None or any(compute in span["name"] for span in spans_of(tracks, "compute", rank))
        assert gathered.ranks[rank].clock_ahead_microseconds == 0
        assert gathered.ranks[rank].error_microseconds < longest_step
        is_expected = rank == 0 or not with_horovod
        assert (collective in {span["name"] for span in spans_of(tracks, "collectives", rank)}) == is_expected
    for clock in gathered.clocks:
        assert clock.error_microseconds < longest_step
    wrong = {name: misplaced(event for event in events if event["ph"] == "X") for name, events in tracks.items()}
    assert {name: pairs for name, pairs in wrong.items() if pairs} == {}
    _collectives_are_within_the_run(tracks, seconds, with_horovod)
    return gathered, tracks


@pytest.mark.parametrize(
    ("backend", "parts", "compute"),
    [
        ("horovod_torch", TORCH | HOROVOD, "aten::conv2d"),
        pytest.param("horovod_tf", HOROVOD, None, marks=pytest.mark.long),
    ],
)
def test_a_run_of_horovod_writes_one_valid_trace(tmp_path, backend, parts, compute):
    # Without its cache Horovod records when each rank was ready, in every step.
    variables = profile.variables(library(), tmp_path / "profiles") | EPOCH | {"HOROVOD_CACHE_CAPACITY": "0"}
    # An epoch, and a profiled one.
    command = [BIN / "mpiexec", "-n", 2, BIN / "python", "-m", f"frameworks.{backend}", "--timeline", "--epochs", 1]
    begun = time.monotonic()
    done = completed(*command, "--results", tmp_path, "--machine", "here", "--run-id", "run", variables=variables)
    ran_seconds = time.monotonic() - begun
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "here" / "run.trace"
    assert {path.name for path in folder.iterdir()} == SPANS | parts
    gathered, _ = valid_trace(folder, parts, compute, "MPI_ALLREDUCE", ran_seconds)
    _gradients_are_payload_and_negotiation_is_control(Traced(0, "", tmp_path / "profiles"))
    _every_rank_and_step_is_recorded(gathered.horovod)


def _collectives_are_within_the_run(tracks, seconds, with_horovod):
    """With a misread clock, collectives would be away from their steps: Horovod negotiates each gradient of a step within it."""
    steps, collectives = ([span for rank in (0, 1) for span in spans_of(tracks, kind, rank)] for kind in ("data: steps", "collectives"))
    first, last = min(span["ts"] for span in steps), max(span["ts"] + span["dur"] for span in steps)
    times = [span["ts"] for span in collectives]
    within = [span["name"] for span in collectives if first <= span["ts"] <= last]
    if with_horovod:
        assert within.count("NEGOTIATE_ALLREDUCE") == NUM_STEPS * NUM_TENSORS
    else:
        assert len(within) == len(times)
    assert max(times) < last + seconds * 1e6
    assert min(times) > first - seconds * 1e6


def _every_rank_and_step_is_recorded(summary):
    # The file may end before the last negotiation does.
    assert summary.num_negotiations - 8 <= summary.num_compared <= summary.num_negotiations
    assert sum(summary.num_operations.values()) > 2 * NUM_STEPS
    assert summary.total_bytes > NUM_STEPS * NUM_PARAMETERS * 4


def _gradients_are_payload_and_negotiation_is_control(done):
    profiles = done.profiles()
    assert list(profiles) == [0, 1]
    # The steps of the profiled epoch too.
    gradients_bytes = (NUM_WARMUP_STEPS + 2 * NUM_STEPS) * NUM_PARAMETERS * 4
    for of_rank in profiles.values():
        assert of_rank.ended == "MPI_Finalize()"
        assert of_rank.max_resident_mebibytes > 100
        # The record's MPI version comes through mpi4py; Horovod's library has no such call.
        assert of_rank.routines["MPI_Get_library_version"].num_calls >= 1
        # Initial parameters and sums make a little more.
        assert gradients_bytes <= of_rank.kinds["payload"].size_bytes < 1.3 * gradients_bytes
        control = of_rank.kinds["control"]
        assert control.num_calls > 10
        assert control.size_bytes / control.num_calls < 1000
        assert of_rank.payload_bytes_per_second() > 1e6


def test_a_matrix_makes_each_run_untraced_and_then_traced(checkout, tmp_path):
    settings = ("--backends", "ddp", "--workloads", "cnn", "--epochs", "1", "--no-stop-at-target")
    begun = time.monotonic()
    done = matrix(checkout, tmp_path, "2", *settings, "--timeline", "--trace", "mpi", variables=EPOCH)
    ran_seconds = time.monotonic() - begun
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of the runs were traced" in done.stdout
    records = records_in(tmp_path)
    plain, profiled = sorted(records, key=lambda record: record["settings"]["timeline"])
    assert (plain["timeline"], plain["settings"]["timeline"], profiled["settings"]["timeline"]) == (None, False, True)
    assert plain["step_breakdown"]["num_steps"] > 0
    assert len(plain["peak_memory_bytes_by_rank"]) == len(plain["step_breakdown"]["communication_exposed_seconds"]) == 2
    assert (plain["settings"]["device"], plain["environment"]["device"], plain["environment"]["gpu"]) == ("cpu", "cpu", None)
    assert profiled["step_breakdown"] is None
    for record in records:
        valid(record)
    # The profiled epoch is one more, and changes nothing that was measured before.
    assert profiled["losses"] == plain["losses"]
    gathered, mpi_profile = profiled["timeline"], profiled["mpi_profile"]
    assert (gathered["problems"], mpi_profile["problems"]) == ([], [])
    assert {rank: profile["ended"] for rank, profile in mpi_profile["ranks"].items()} == dict.fromkeys("01", "MPI_Finalize()")
    (folder,) = tmp_path.glob("here/*.trace")
    _, tracks = valid_trace(folder, TORCH, "DistributedDataParallel.forward", "gloo:all_reduce", ran_seconds)
    # In each of the steps that are kept.
    sent = [
        [span["args"]["bytes"] for span in spans_of(tracks, "collectives", rank) if span["name"] == "gloo:all_reduce"] for rank in (0, 1)
    ]
    assert [sum(sizes) for sizes in sent] == [ACTIVE * NUM_PARAMETERS * 4] * 2
