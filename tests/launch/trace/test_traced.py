"""The variables of a traced run of a matrix, and the summary of its trace files in the record."""

import pytest

from common.config import Settings
from common.record.parts import MpiOfRank
from launch.launchers.commands import Launcher
from launch.trace import build, profile, timeline
from tests.launch.trace.test_profile import OLDER
from tests.support.made_records import made, typed
from tests.support.mistakes import refused

LAUNCHER = Launcher("mpich", "mpiexec", {"A": "b"})


def settings(tmp_path, **changes):
    return Settings(results=tmp_path, machine="here", run_id="run", **changes)


def test_every_rank_of_a_traced_run_has_the_environments_library(tmp_path, monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "other.so")
    launcher = profile.launcher_for(settings(tmp_path, trace="mpi"), LAUNCHER)
    folder = str(tmp_path / "here" / "run.trace")
    expected = {"A": "b", "LD_PRELOAD": f"{build.installed()}:other.so", "TRACE_DIR": folder, "SAVE_ALL_TASKS": "yes"}
    assert launcher == LAUNCHER._replace(variables=expected)
    assert profile.launcher_for(settings(tmp_path), LAUNCHER) == LAUNCHER


@pytest.mark.parametrize("name", ["my tandem", "my:tandem"])
def test_a_sites_own_library_is_preloaded_instead_by_a_path_that_is_not_cut_or_refused(name, tmp_path):
    library = tmp_path / name / "libmpitrace.so"
    library.parent.mkdir()
    (tmp_path / "libmpitrace.so").touch()
    assert (
        profile.launcher_for(settings(tmp_path, trace=f"{tmp_path}/libmpitrace.so"), LAUNCHER)
        .variables["LD_PRELOAD"]
        .startswith(f"{tmp_path}/")
    )
    library.symlink_to(tmp_path / "libmpitrace.so")
    launcher = profile.launcher_for(settings(tmp_path, trace=str(library)), LAUNCHER)
    assert launcher.variables["LD_PRELOAD"] == str((tmp_path / "libmpitrace.so").resolve())
    library.unlink()
    with refused("--trace: LD_PRELOAD cuts the path ", "at its space or colon"):
        profile.launcher_for(settings(tmp_path, trace=str(library)), LAUNCHER)


def test_a_sites_profiles_are_in_the_record_and_damaged_ones_are_listed(tmp_path):
    (tmp_path / "mpi_profile.17.3").write_text(OLDER)
    (tmp_path / "mpi_profile.17.0").write_text(OLDER[:300])
    summary = profile.summary(tmp_path)
    assert summary.ranks == {"3": MpiOfRank(0.625, None, None, elapsed_seconds=2.0, ended="MPI_Finalize()")}
    assert ["mpi_profile.17.0 is truncated" in problem for problem in summary.problems] == [True]


def summarized(tmp_path):
    """The record of a traced run with the summaries of its trace files."""
    (record,) = typed([made()])
    timeline.add_to_record(settings(tmp_path, trace="mpi", timeline=True), record)
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
    monkeypatch.setattr(profile, "summary", broken)
    record, problem = summarized(tmp_path), "the trace files could not be summed up (KeyError: 'dur')"
    assert (record.mpi_profile.problems, record.timeline.problems) == ([problem], [problem])
