"""The variables of a traced run of a matrix, and the summary of its trace files in the record."""

import json

import numpy as np
import pytest

from common import chrome_trace
from common.config import Settings
from common.record.parts import MpiOfRank
from launch.launchers.commands import Launcher
from launch.trace import build, profile, timeline, traced
from tests.launch.trace.test_merge import tracks_of
from tests.launch.trace.test_profile import OLDER
from tests.support.made_records import made, typed
from tests.support.mistakes import refused

LAUNCHER = Launcher("mpich", "mpiexec", {"A": "b"})


def settings(tmp_path, **changes):
    return Settings(results=tmp_path, machine="here", run_id="run", **changes)


@pytest.mark.parametrize(("trace", "more"), [("mpi", {}), ("events", {"TANDEM_TRACE_EVENTS": str(traced.NUM_EVENTS)})])
def test_every_rank_of_a_traced_run_has_the_environments_library(trace, more, tmp_path, monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "other.so")
    launcher = traced.launcher_for(settings(tmp_path, trace=trace), LAUNCHER)
    folder = str(tmp_path / "here" / "run.trace")
    expected = {"A": "b", "LD_PRELOAD": f"{build.installed()}:other.so", "TRACE_DIR": folder, "SAVE_ALL_TASKS": "yes"}
    assert launcher == LAUNCHER._replace(variables=expected | more)
    assert traced.launcher_for(settings(tmp_path), LAUNCHER) == LAUNCHER


@pytest.mark.parametrize("name", ["my tandem", "my:tandem"])
def test_a_sites_own_library_is_preloaded_instead_by_a_path_that_is_not_cut_or_refused(name, tmp_path):
    library = tmp_path / name / "libmpitrace.so"
    library.parent.mkdir()
    (tmp_path / "libmpitrace.so").touch()
    assert (
        traced.launcher_for(settings(tmp_path, trace=f"{tmp_path}/libmpitrace.so"), LAUNCHER)
        .variables["LD_PRELOAD"]
        .startswith(f"{tmp_path}/")
    )
    library.symlink_to(tmp_path / "libmpitrace.so")
    launcher = traced.launcher_for(settings(tmp_path, trace=str(library)), LAUNCHER)
    assert launcher.variables["LD_PRELOAD"] == str((tmp_path / "libmpitrace.so").resolve())
    library.unlink()
    with refused("--trace: LD_PRELOAD cuts the path ", "at its space or colon"):
        traced.launcher_for(settings(tmp_path, trace=str(library)), LAUNCHER)


def test_a_sites_profiles_are_in_the_record_and_damaged_ones_are_listed(tmp_path):
    (tmp_path / "mpi_profile.17.3").write_text(OLDER)
    (tmp_path / "mpi_profile.17.0").write_text(OLDER[:300])
    summary = traced.profile_summary(tmp_path)
    assert summary.ranks == {"3": MpiOfRank(0.625, None, None, elapsed_seconds=2.0, ended="MPI_Finalize()")}
    assert ["mpi_profile.17.0 is truncated" in problem for problem in summary.problems] == [True]


def events_file(path, rank, num_dropped, starts):
    """A file of events of 1 ms each; `starts` in seconds since the epoch."""
    head = {
        "rank": rank, "num_events": len(starts), "num_dropped": num_dropped, "epoch_of_zero_nanoseconds": 0, "clock_error_nanoseconds": 50,
        "routines": ["MPI_Barrier"],
    }  # fmt: skip
    calls = np.array([(start * 1e9, 1e6, 0, 0, 1, 0) for start in starts], dtype=profile.CALL)
    path.write_bytes(profile.EVENTS_MAGIC + json.dumps(head).encode() + b"\n" + calls.tobytes())


def test_dropped_events_are_listed(tmp_path):
    (tmp_path / "mpi_profile.17.1").write_text(OLDER)
    events_file(tmp_path / "mpi_events.17.0.bin", 0, 0, [5.0, 7.0])
    events_file(tmp_path / "mpi_events.17.1.bin", 1, 30, [5.0, 17.5])
    events_file(tmp_path / "mpi_events.17.2.bin", 2, 4, [])
    (tmp_path / "mpi_events.17.3.bin").write_text("none")
    assert traced.profile_summary(tmp_path).problems == [
        "rank 1: the buffer of MPI events was full 12.5 s after the first call; 30 calls dropped",
        "rank 2: the buffer of MPI events was full 0.0 s after the first call; 4 calls dropped",
        f"{tmp_path}/mpi_events.17.3.bin is not a file of MPI events; give files mpi_events.JOB.RANK.bin",
    ]


def test_mpi_calls_are_part_of_the_merged_trace_and_a_damaged_file_is_left_out(tmp_path):
    for rank, starts in ((0, [5.0, 7.0]), (1, []), (2, [6.0])):
        events_file(tmp_path / f"mpi_events.17.{rank}.bin", rank, 0, starts)
    (tmp_path / "mpi_events.17.3.bin").write_text("none")
    gathered = timeline.gather(tmp_path)
    assert [(clock.source, clock.error_microseconds) for clock in gathered.clocks] == [
        ("MPI calls of rank 0", 0.05), ("MPI calls of rank 2", 0.05),
    ]  # fmt: skip
    tracks = tracks_of(chrome_trace.events(tmp_path / timeline.MERGED))
    assert {rank: [(call["name"], call["ts"], call["dur"]) for call in calls] for (rank, _), calls in tracks.items()} == {
        0: [("MPI_Barrier", 1e3, 1000), ("MPI_Barrier", 2.001e6, 1000)], 2: [("MPI_Barrier", 1.001e6, 1000)],
    }  # fmt: skip
    assert {name for _, name in tracks} == {"MPI: thread 0"}
    assert ["is not a file of MPI events" in problem for problem in gathered.problems] == [True]


def summarized(tmp_path):
    """The record of a traced run with the summaries of its trace files."""
    (record,) = typed([made()])
    traced.add_to_record(settings(tmp_path, trace="mpi", timeline=True), record)
    return record


def test_a_run_without_trace_files_is_listed(tmp_path):
    record = summarized(tmp_path)
    assert (record.mpi_profile.ranks, record.timeline.trace) == ({}, None)
    assert "no MPI profile" in record.mpi_profile.problems[0]
    assert "has no timeline" in record.timeline.problems[0]


def test_no_error_of_the_summary_ends_a_matrix(tmp_path, monkeypatch):
    def broken(*_):
        raise KeyError("dur")

    monkeypatch.setattr(timeline, "gather", broken)
    monkeypatch.setattr(traced, "profile_summary", broken)
    record, problem = summarized(tmp_path), "the trace files could not be summed up (KeyError: 'dur')"
    assert (record.mpi_profile.problems, record.timeline.problems) == ([problem], [problem])
