"""A profiled epoch: kernels, streams and NCCL's calls; the interposer's count of NCCL's calls; energy."""

import collections
import gzip
import json
import shutil
import sys
from pathlib import Path

import pytest

from common.record import files
from launch.trace import profile as mpi_profile
from tests.gpu.running import run, train

SHARE = 0.25
# As PyTorch names a call of NCCL on the host, and as NCCL names its kernels.
CALL, KERNEL = "nccl:", "ncclDevKernel"
NUM_TOP = 5
NUM_STEPS = 40


def options(session):
    workload = "transformer-base" if session.on_gpu else "transformer"
    return "--workload", workload, "--batch-size", 8, "--epochs", 1, "--no-stop-at-target"


def trace_folder(session, name):
    return session.folder / "records" / "here" / f"{name}{files.TRACES_END}"


def test_kernels_streams_and_calls_of_NCCL_in_a_profiled_epoch(session, measured):
    """The profiler saw something of ddp on one rank, on a GPU kernels."""
    train(session, "ddp", "profile", *options(session), "--timeline", num_steps=NUM_STEPS)
    profiled = events(trace_folder(session, "profile") / "torch.0.json.gz")
    kernels = [event for event in profiled if event.get("cat") == "kernel"]
    seconds = collections.Counter()
    for event in kernels:
        seconds[event["name"][:60]] += event["dur"] / 1e6
    measured |= {
        "events": len(profiled),
        "kernels": len(kernels),
        "kernels (ms)": 1000 * sum(seconds.values()),
        "streams": len({event["tid"] for event in kernels}),
        "NCCL kernels": sum(KERNEL in event["name"] for event in kernels),
        "NCCL calls": sum(nccl_calls(profiled).values()),
        "longest": [f"{name} {1000 * spent:.3g} ms" for name, spent in seconds.most_common(NUM_TOP)],
    }
    assert profiled, "the profile is empty"
    assert kernels or not session.on_gpu, "the profile has no kernels"


@pytest.mark.gpu
def test_calls_of_NCCL_by_the_interposer_and_by_the_profiler(session, measured, tmp_path):
    mpicc = shutil.which("mpicc")
    if mpicc is None:
        pytest.skip("there is no mpicc to build the interposer with")
    library = tmp_path / "libtandemtrace.so"
    build = [sys.executable, "-m", "launch.trace.build", "--mpicc", mpicc, "--library", library]
    status, printed = run(session, "profile-build", build, 90.0)
    if status:
        pytest.skip(f"the interposer cannot be built: {(printed.splitlines() or ['no output'])[-1]}")
    name = "profile-intercepted"
    folder = trace_folder(session, name)
    train(session, "ddp", name, *options(session), "--timeline", variables=mpi_profile.variables(library, folder), num_steps=NUM_STEPS)
    calls = nccl_calls(events(folder / "torch.0.json.gz"))
    profiles = mpi_profile.find(folder)
    assert profiles, "the interposer wrote no profile"
    counted = {name: sums.num_calls for name, sums in mpi_profile.read(profiles[0]).nccl.items()}
    assert counted, "the interposer saw no call of NCCL"
    # The interposer counts ncclAllReduce in the whole run; the profiler counts all_reduce, all_reduce_barrier, … in one epoch.
    seen = [name.lower().removeprefix("nccl") for name in counted]
    missing = [call for call in calls if not any(name in call.replace("_", "") for name in seen)]
    assert not missing, f"the interposer did not see {missing}; it saw {counted}"
    measured |= {"interposer, whole run": counted, "profiler, one epoch": dict(calls)}


@pytest.mark.gpu
def test_energy_by_NVML(session, measured):
    record = train(session, "single", "profile-energy", *options(session), "--no-step-breakdown", num_steps=NUM_STEPS)
    assert record.energy_joules, "no energy could be read"
    measured["energy (J)"] = record.energy_joules


def nccl_calls(profiled):
    """Counter of the collectives that the host called: of names such as nccl:all_reduce, the part after the colon."""
    names = [event["name"] for event in profiled if event.get("cat") in ("user_annotation", "cpu_op") and event["name"].startswith(CALL)]
    return collections.Counter(name.removeprefix(CALL).split()[0] for name in names)


def events(path: Path):
    """The events of a Chrome trace that have a duration."""
    with gzip.open(path, "rt") as text:
        trace = json.load(text)
    return [event for event in (trace["traceEvents"] if isinstance(trace, dict) else trace) if event.get("ph") == "X"]
