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


def run(backend, folder, *arguments, every_tick=False):
    """Trains the backend for an epoch and a profiled one on two ranks; returns its exit status and what it printed.

    The folder must be called RESULTS/here/run.trace.
    """
    variables = horovod.timeline_variables(folder, every_tick=every_tick)
    command = [BIN / "mpiexec", "-n", 2, BIN / "python", "-m", f"frameworks.{backend}", "--timeline", "--epochs", 1, "--batch-size", 32]
    done = completed(*command, "--results", folder.parent.parent, "--machine", "here", "--run-id", "run", *arguments, variables=variables)
    return done.returncode, done.stdout + done.stderr


def misplaced(events):
    """Pairs of spans on one track that overlap without nesting by more than the rounding to nanoseconds."""
    found, open_until = [], []
    for event in sorted(events, key=lambda span: (span["ts"], -span["dur"])):
        end = event["ts"] + event["dur"]
        while open_until and open_until[-1][0] <= event["ts"] + 0.01:
            open_until.pop()
        if open_until and end > open_until[-1][0] + 0.01:
            found.append((open_until[-1][1], event["name"]))
        open_until.append((end, event["name"]))
    return found


@pytest.mark.parametrize(
    ("backend", "parts", "compute", "collective"),
    [
        ("horovod_torch", TORCH | HOROVOD, "aten::conv2d", "MPI_ALLREDUCE"),
        ("ddp", TORCH, "DistributedDataParallel.forward", "gloo:all_reduce"),
        ("deepspeed_zero", TORCH, "aten::conv2d", "gloo:all_gather"),
        ("horovod_tf", TENSORFLOW | HOROVOD, "train_step", "MPI_ALLREDUCE"),
        # Which of its convolutions TensorFlow takes (Conv2D, _MklNativeFusedConv2D, …) depends on the processor.
        ("horovod_keras", TENSORFLOW | HOROVOD, "Conv2D", "MPI_ALLREDUCE"),
    ],
)
def test_a_run_writes_one_valid_trace(tmp_path, backend, parts, compute, collective):
    folder = tmp_path / "here" / "run.trace"
    status, printed = run(backend, folder)
    assert status == 0, printed
    assert {path.name for path in folder.iterdir()} == SPANS | parts
    found = timeline.gather(folder)
    assert found["problems"] == []
    assert (found["horovod"] is not None) == ("horovod" in backend)
    events = list(chrome.events(folder / timeline.MERGED))
    assert chrome.check(events).num_problems == 0
    tracks = tracks_of(events)
    for rank in (0, 1):
        assert len(found["steps"][rank]["step_seconds"]) == len(found["steps"][rank]["data_seconds"]) == NUM_STEPS
        assert any(compute in event["name"] for (of, name), each in tracks.items() if (of, "compute") == (rank, name[:7]) for event in each)
        _, error = (found["ranks"][str(rank)][name] for name in ("clock_ahead_microseconds", "error_microseconds"))
        assert error < 20_000
    ranks = {
        rank for (rank, name), each in tracks.items() if name.startswith("collectives") for event in each if event["name"] == collective
    }
    assert ranks == ({0} if "horovod" in backend else {0, 1})
    for clock in found["clocks"]:
        assert clock["error_microseconds"] < 5000
    assert {name: wrong for name, each in tracks.items() if (wrong := misplaced(event for event in each if event["ph"] == "X"))} == {}
    _collectives_are_within_the_run(tracks)
    if backend == "ddp":
        # The CNN's 1,199,882 parameters in each of the steps that are kept.
        assert [found["collectives"][rank]["gloo:all_reduce"].size_bytes for rank in (0, 1)] == [ACTIVE * 1_199_882 * 4] * 2
    start, end = picture.step_window(events, 4, 1)
    assert {row.rank for row in picture.rows(events, start, end)} == {0, 1}


def _collectives_are_within_the_run(tracks):
    """With a misread clock, collectives would be minutes or years away from their steps."""
    steps = [event for (_, name), each in tracks.items() if name == "data: steps" for event in each]
    first, last = min(event["ts"] for event in steps), max(event["ts"] + event["dur"] for event in steps)
    times = [event["ts"] for (_, name), each in tracks.items() if name.startswith("collectives") for event in each if event["ph"] == "X"]
    assert sum(first <= ts <= last for ts in times) > len(times) / 3
    assert max(times) < last + 60e6
    assert min(times) > first - 60e6


def test_without_its_cache_horovod_records_every_rank(tmp_path):
    folder = tmp_path / "here" / "run.trace"
    status, printed = run("horovod_torch", folder, every_tick=True)
    assert status == 0, printed
    of_file = timeline.describe_file(folder / horovod_timeline.FILE)
    assert not (folder / timeline.MERGED).exists()
    assert timeline.describe_folder(folder)[: len(of_file)] == of_file
    summary = timeline.gather(folder)["horovod"]
    # The file may end before the last negotiation does.
    assert summary.num_negotiations - 8 <= summary.num_compared <= summary.num_negotiations
    assert sum(summary.num_operations.values()) > 2 * NUM_STEPS
    assert summary.num_cycles > summary.num_used_cycles > 0
    # The CNN's 1,199,882 parameters, in each step.
    assert summary.total_bytes > NUM_STEPS * 1_199_882 * 4


def test_the_log_of_horovods_tuning_is_kept(tmp_path, monkeypatch):
    # It waits longer than a short run takes.
    monkeypatch.setenv("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "1")
    monkeypatch.setenv("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "2")
    folder = tmp_path / "here" / "run.trace"
    status, printed = run("horovod_torch", folder, "--autotune")
    assert status == 0, printed
    names, *tried = (folder / horovod.AUTOTUNE).read_text().splitlines()
    assert "tensor_fusion_threshold" in names
    assert tried


def test_a_compiled_run_writes_a_valid_trace_with_one_span_per_compiled_function(tmp_path):
    folder = tmp_path / "here" / "run.trace"
    status, printed = run("ddp", folder, "--compile")
    assert status == 0, printed
    found = timeline.gather(folder)
    assert found["problems"] == []
    events = list(chrome.events(folder / timeline.MERGED))
    assert chrome.check(events).num_problems == 0
    for rank in (0, 1):
        names = [event["name"] for (of, name), each in tracks_of(events).items() if (of, name[:7]) == (rank, "compute") for event in each]
        assert sum(name.startswith(COMPILED) for name in names) == ACTIVE
        assert "aten::conv2d" not in names


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
    found = profiled["timeline"]
    assert found["problems"] == []
    for rank in ("0", "1"):
        assert len(found["steps"][rank]["step_seconds"]) == NUM_STEPS
    assert profiled["mpi_profile"]["problems"] == []
    assert {rank: one["ended"] for rank, one in profiled["mpi_profile"]["ranks"].items()} == dict.fromkeys("01", "MPI_Finalize()")
    assert {clock["source"] for clock in found["clocks"]} >= {"MPI calls of rank 0", "MPI calls of rank 1"}
    (folder,) = tmp_path.glob("here/*.trace")
    assert chrome.check(chrome.events(folder / found["trace"])).num_problems == 0
