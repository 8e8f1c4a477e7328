"""python -m launch.compare: what it writes, what it says, and its exit status."""

import itertools
import json
import sys
from pathlib import Path

import pytest

from common.record import files
from launch import compare, matrix
from launch.report.export import drawing
from tests.support.made_records import ended, made, on, repeats, typed

LATER = {"started_at": "2026-02-01T00:00:00Z"}
OLD = {"stamp": "20250101-000000"}


def folder(path, *made_records):
    path.mkdir()
    for record in typed(made_records):
        files.write(path / f"{record.settings.run_id}.json", record)
    return path


@pytest.fixture
def undrawn(monkeypatch):
    """Pages have no charts, which take a second: tests/launch/report/test_page.py has them drawn."""
    monkeypatch.setattr(drawing, "svgs", lambda specs, **_: [""] * len(specs))


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Runs the program in this process, in an empty folder: (exit status, what it printed, its errors)."""
    monkeypatch.chdir(tmp_path)

    def run_compare(*arguments):
        monkeypatch.setattr(sys, "argv", ["compare", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_info:
            compare.main()
        return exit_info.value.code, *capsys.readouterr()

    return run_compare


def test_a_file_whose_name_is_not_in_utf_8_is_in_every_form(tmp_path, run, undrawn):
    results = folder(tmp_path / "results", *repeats([9.0, 9.5]), ended("failed", num_ranks=2))
    (results / "half\udcff.json").write_text("{")
    exports = {option: tmp_path / f"a.{option.strip('-')}" for option in ("--markdown", "--csv", "--html")}
    status, printed, error = run(results, "--full", *(part for export in exports.items() for part in export))
    assert (status, error) == (0, "")
    assert "half .json" in printed
    assert "half .json" in exports["--markdown"].read_text()
    assert "half?.json" in exports["--html"].read_text()
    assert len(exports["--csv"].read_text().splitlines()) == 4


def test_the_folders_of_several_jobs_of_one_size_each_give_one_report(tmp_path, run):
    """All have begun in the same second, and only the job of size 1 has run `single`."""
    cells = {1: {"single": 12.0, "ddp": 12.5}, 2: {"ddp": 6.0, "horovod_torch": 7.0}, 4: {"ddp": 3.0, "horovod_torch": 4.0}}
    folders = []
    for num_ranks, seconds_by_backend in cells.items():
        changes = {"num_ranks": num_ranks, "stamp": f"20260101-000000-{num_ranks:06x}", "settings": {"results": Path(f"job-{num_ranks}")}}
        runs = [repeats([seconds] * 6, backend=backend, **changes) for backend, seconds in seconds_by_backend.items()]
        folders.append(folder(tmp_path / f"job-{num_ranks}", *itertools.chain(*runs)))
    status, printed, error = run(*folders, "--full")
    assert (status, error) == (0, "")
    assert "4 ranks: ddp reached the target first, in 3.00 s. horovod_torch's epochs take" in printed
    assert "the same run as" not in printed


@pytest.mark.parametrize(
    ("seconds", "status", "sentence"), [([13.0, 13.1, 13.2], 3, "is slower"), ([10.0, 10.1, 10.2], 0, "Nothing that could be judged")]
)
def test_a_regression_of_plain_runs_is_the_exit_status_and_the_first_section(seconds, status, sentence, tmp_path, run):
    old = folder(tmp_path / "old", *repeats([10.0, 10.1, 10.2], **OLD))
    (old / "half.json").write_text("{")
    profiled = repeats([20.0, 20.1, 20.2], settings={"timeline": True}, stamp="20260102-000000")
    exit_status, printed, _ = run(folder(tmp_path / "new", *repeats(seconds), *profiled), "--baseline", old)
    assert exit_status == status
    assert printed.startswith("What changed against the baseline?")
    assert sentence in printed
    assert "half.json" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--csv", "a.csv", "--html", "none/a.html"],
            "--html none/a.html cannot be written (No such file or directory); give another file",
        ),
        (["--html", "results"], "--html results is a folder; give the name of a file"),
        (["--markdown", "a.txt", "--csv", "results/../a.txt"], "--markdown and --csv are both results/../a.txt; name different files"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(arguments, message, tmp_path, run):
    folder(tmp_path / "results", made())
    assert run("results", *arguments) == (2, "", f"error: {message}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_the_end_of_a_matrix_is_one_screen_and_says_where_the_rest_is(tmp_path, capsys, undrawn):
    made_records = [made(), made(num_ranks=2, seconds=6.0)]
    page = tmp_path / "a.html"
    matrix.write_report(page, typed(made_records))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Seconds to solution, + seconds of start-up")
    assert lines[-3].startswith("Tandem (")
    assert lines[-2] == f"page: {page}"
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert len(lines) <= 30


def test_json_alone_is_printed_for_scripts_and_the_default_is_a_screen(tmp_path, run):
    results = folder(tmp_path / "results", made(), made(backend="single", seconds=8.0))
    status, printed, error = run(results, "--json")
    assert (status, error, json.loads(printed)["comparisons"][0]["first"]) == (0, "", "single")
    status, screen, error = run(results)
    assert (status, error) == (0, "")
    assert "Which backend reaches the target first?" not in screen
    assert "--full" in screen.splitlines()[-1]


def test_a_page_that_cannot_be_written_is_reported_and_raises_nothing(tmp_path, capsys, undrawn):
    matrix.write_report(tmp_path / "not there" / "page.html", typed([made()]))
    assert "not there" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_traced_runs_are_left_out_and_counted_and_failed_ones_listed(tmp_path, run):
    settings = ({"timeline": True}, {"trace": "mpi"}, {"share_gpu": True})
    profiled = [made(seconds=5.0, repeat=repeat, settings=setting) for repeat, setting in enumerate(settings, 1)]
    failed = ended("failed", repeat=4, settings={"timeline": True})
    status, printed, _ = run(folder(tmp_path / "results", made(seconds=9.0), *profiled, failed), "--full")
    assert status == 0
    assert "ddp reached the target first, in 9.00 s" in printed
    assert "4 of the runs were traced or shared a GPU (--share-gpu, --timeline, --trace), and are left out." in printed
    assert "it broke" in printed
    status, _, error = run(folder(tmp_path / "profiled", *profiled))
    assert (status, error.count("\n")) == (2, 1)
    assert "all of these runs were traced" in error


def test_records_of_several_machines_are_refused(tmp_path, run):
    folder(tmp_path / "here", made())
    folder(tmp_path / "there", *on("there", [made() | LATER]))
    for baseline in ((), ("--baseline", "here")):
        message = "the records are of several machines (here, there); compare one, with another as its --baseline"
        assert run("here", "there", *baseline) == (2, "", f"error: {message}\n")
