"""Real runs of two ranks: their timelines and profiles are merged into one valid trace with all tracks and aligned clocks."""

import json

import jsonschema
import pytest

from common.tracing import chrome, horovod_timeline
from common.tracing.profiling import ACTIVE
from frameworks.shared.horovod import horovod
from launch.trace import picture, timeline
from tests.launch.trace.test_merge import tracks_of
from tests.support.running import BIN, ROOT, completed, matrix, records_in

pytestmark = [pytest.mark.matrix, pytest.mark.long]

NUM_STEPS = 22
TORCH = {"torch.0.json.gz", "torch.0.txt", "torch.1.json.gz", "torch.1.txt"}
TENSORFLOW = {"tensorflow.0.json.gz", "tensorflow.1.json.gz"}
SPANS = {"spans.0.json.gz", "spans.1.json.gz"}
HOROVOD = {horovod_timeline.FILE}
# What PyTorch's profiler calls each call of a compiled function.
COMPILED = "Torch-Compiled Region"


def run(backend, folder, *arguments, **variables):
    """Trains the backend for an epoch and a profiled one on two ranks; returns its exit status and what it printed.

    The folder must be called RESULTS/here/run.trace.
    """
    command = [BIN / "mpiexec", "-n", 2, BIN / "python", "-m", f"frameworks.{backend}", "--timeline", "--epochs", 1, "--batch-size", 32]
    done = completed(*command, "--results", folder.parent.parent, "--machine", "here", "--run-id", "run", *arguments, variables=variables)
    return done.returncode, done.stdout + done.stderr


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


@pytest.mark.parametrize(
    ("backend", "arguments", "parts", "compute", "collective"),
    [
        ("horovod_torch", ("--autotune",), TORCH | HOROVOD | {horovod.AUTOTUNE}, "aten::conv2d", "MPI_ALLREDUCE"),
        ("ddp", (), TORCH, "DistributedDataParallel.forward", "gloo:all_reduce"),
        ("ddp", ("--compile",), TORCH, COMPILED, "gloo:all_reduce"),
        ("deepspeed_zero", (), TORCH, "aten::conv2d", "gloo:all_gather"),
        ("horovod_tf", (), TENSORFLOW | HOROVOD, "train_step", "MPI_ALLREDUCE"),
        # Which of its convolutions TensorFlow takes (Conv2D, _MklNativeFusedConv2D, …) depends on the processor.
        ("horovod_keras", (), TENSORFLOW | HOROVOD, "Conv2D", "MPI_ALLREDUCE"),
    ],
)
def test_a_run_writes_one_valid_trace(tmp_path, monkeypatch, backend, arguments, parts, compute, collective):
    # Horovod's autotuner waits longer than a short run takes.
    monkeypatch.setenv("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "1")
    monkeypatch.setenv("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "2")
    folder = tmp_path / "here" / "run.trace"
    status, printed = run(backend, folder, *arguments)
    assert status == 0, printed
    assert {path.name for path in folder.iterdir()} == SPANS | parts
    gathered = timeline.gather(folder)
    assert gathered.problems == []
    assert (gathered.horovod is not None) == ("horovod" in backend)
    events = list(chrome.events(folder / timeline.MERGED))
    tracks = tracks_of(events)
    # What bounds the clocks happens within a step, however busy the machine is.
    longest_step = 1e6 * max(seconds for steps in gathered.steps.values() for of_kind in steps.values() for seconds in of_kind)
    for rank in (0, 1):
        assert [len(seconds) for seconds in gathered.steps[str(rank)].values()] == [NUM_STEPS, NUM_STEPS]
        assert any(compute in span["name"] for span in spans_of(tracks, "compute", rank))
        assert gathered.ranks[str(rank)]["clock_ahead_microseconds"] == 0
        assert gathered.ranks[str(rank)]["error_microseconds"] < longest_step
        is_expected = rank == 0 or "horovod" not in backend
        assert (collective in {span["name"] for span in spans_of(tracks, "collectives", rank)}) == is_expected
    for clock in gathered.clocks:
        assert clock["error_microseconds"] < longest_step
    wrong = {name: misplaced(event for event in events if event["ph"] == "X") for name, events in tracks.items()}
    assert {name: pairs for name, pairs in wrong.items() if pairs} == {}
    _collectives_are_within_the_run(tracks)
    start, end = picture.step_window(events, 4, 1)
    assert {row.rank for row in picture.rows(events, start, end)} == {0, 1}
    if backend == "ddp":
        # The CNN's 1,199,882 parameters in each of the steps that are kept.
        assert [gathered.collectives[rank]["gloo:all_reduce"]["size_bytes"] for rank in "01"] == [ACTIVE * 1_199_882 * 4] * 2
    if "--compile" in arguments:
        # One span per compiled function.
        names = [span["name"] for span in spans_of(tracks, "compute", 0)]
        assert sum(name.startswith(COMPILED) for name in names) == ACTIVE
        assert "aten::conv2d" not in names
    if "--autotune" in arguments:
        names, *tried = (folder / horovod.AUTOTUNE).read_text().splitlines()
        assert "tensor_fusion_threshold" in names
        assert tried


def _collectives_are_within_the_run(tracks):
    """With a misread clock, collectives would be minutes or years away from their steps."""
    steps, collectives = ([span for rank in (0, 1) for span in spans_of(tracks, kind, rank)] for kind in ("data: steps", "collectives"))
    first, last = min(span["ts"] for span in steps), max(span["ts"] + span["dur"] for span in steps)
    times = [span["ts"] for span in collectives]
    assert sum(first <= ts <= last for ts in times) > len(times) / 3
    assert max(times) < last + 60e6
    assert min(times) > first - 60e6


def test_without_its_cache_horovod_records_every_rank(tmp_path):
    folder = tmp_path / "here" / "run.trace"
    status, printed = run("horovod_torch", folder, HOROVOD_CACHE_CAPACITY="0")
    assert status == 0, printed
    of_file = timeline.describe_file(folder / horovod_timeline.FILE)
    assert not (folder / timeline.MERGED).exists()
    assert timeline.describe_folder(folder)[: len(of_file)] == of_file
    summary = timeline.gather(folder).horovod
    # The file may end before the last negotiation does.
    assert summary.num_negotiations - 8 <= summary.num_compared <= summary.num_negotiations
    assert sum(summary.num_operations.values()) > 2 * NUM_STEPS
    assert summary.num_cycles > summary.num_used_cycles > 0
    # The CNN's 1,199,882 parameters, in each step.
    assert summary.total_bytes > NUM_STEPS * 1_199_882 * 4


def test_a_matrix_makes_each_run_untraced_and_then_traced(checkout, tmp_path):
    settings = ("--backends", "ddp", "--workloads", "cnn", "--epochs", "1", "--batch-size", "32", "--no-stop-at-target")
    done = matrix(checkout, tmp_path, "2", *settings, "--timeline", "--trace", "events")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of the runs were traced" in done.stdout
    both = records_in(tmp_path)
    plain, profiled = sorted(both, key=lambda record: record["settings"]["timeline"])
    assert (plain["timeline"], plain["settings"]["timeline"], profiled["settings"]["timeline"]) == (None, False, True)
    assert (plain["step_breakdown"]["num_steps"] > 0, profiled["step_breakdown"]) == (True, None)
    for record in both:
        jsonschema.validate(record, json.loads((ROOT / "results" / "schema.json").read_text()))
    # The profiled epoch is one more, and changes nothing that was measured before.
    assert profiled["losses"] == plain["losses"]
    gathered, mpi_profile = profiled["timeline"], profiled["mpi_profile"]
    assert (gathered["problems"], mpi_profile["problems"]) == ([], [])
    assert {rank: len(seconds["step_seconds"]) for rank, seconds in gathered["steps"].items()} == {"0": NUM_STEPS, "1": NUM_STEPS}
    assert {rank: profile["ended"] for rank, profile in mpi_profile["ranks"].items()} == dict.fromkeys("01", "MPI_Finalize()")
    assert {clock["source"] for clock in gathered["clocks"]} >= {"MPI calls of rank 0", "MPI calls of rank 1"}
