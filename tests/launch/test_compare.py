"""python -m launch.compare: what it writes, what it says, and its exit status."""

import json
import sys

import pytest

from common.record import records
from launch import compare
from launch.compare import main
from launch.report import live
from launch.report.live import show
from tests.launch.forecast.scaling import test_forecasts
from tests.support.made_records import ended, made, repeats, typed


def folder(path, found):
    path.mkdir()
    for record in typed(found):
        records.write(path / f"{record.settings.run_id}.json", record)
    return path


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs the program in this process: (exit status, what it printed, its errors)."""

    def compare(*arguments):
        monkeypatch.setattr(sys, "argv", ["compare", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return compare


def test_every_export_is_written_in_one_go(tmp_path, run):
    results = folder(tmp_path / "results", [*repeats([9.0, 9.5]), ended("failed", num_ranks=2)])
    (results / "half.json").write_text("{")
    wanted = {"--markdown": "a.md", "--csv": "a.csv", "--html": "a.html", "--svg": "a.svg"}
    status, printed, error = run(results, *(part for option, name in wanted.items() for part in (option, tmp_path / name)))
    assert (status, error) == (0, "")
    assert "the lowest time so far is 9.25 s, ddp at 1 rank" in printed
    assert "half.json" in printed
    assert "half.json" in (tmp_path / "a.md").read_text()
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 4
    assert (tmp_path / "a.html").read_text().startswith("<!DOCTYPE html>")
    assert (tmp_path / "a.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("seconds", "status", "said"), [([13.0, 13.1, 13.2], 3, "got slower"), ([10.0, 10.1, 10.2], 0, "Nothing that could be judged")]
)
def test_the_exit_status_reports_a_regression(seconds, status, said, tmp_path, run):
    old = folder(tmp_path / "old", repeats([10.0, 10.1, 10.2], stamp="20250101-000000"))
    (old / "half.json").write_text("{")
    new = folder(tmp_path / "new", repeats(seconds))
    found = run(new, "--baseline", old)
    assert found[0] == status
    assert said in found[1]
    assert "half.json" in found[1]


def test_a_mistake_is_one_line_and_leaves_nothing_behind(tmp_path, run):
    results = folder(tmp_path / "results", [made()])
    path = tmp_path / "none" / "a.html"
    status, printed, error = run(results, "--csv", tmp_path / "a.csv", "--html", path)
    assert (status, printed, error.count("\n")) == (2, "", 1)
    assert f"--html {path} cannot be written" in error
    assert not (tmp_path / "a.csv").exists()


def test_records_of_two_schemas_are_refused(tmp_path, run):
    results = folder(tmp_path / "results", [made()])
    (results / "old.json").write_text(json.dumps(made() | {"schema": 1}))
    status, _, error = run(results)
    assert (status, "old.json has schema 1" in error) == (2, True)


def test_a_picture_is_refused_where_there_is_nothing_to_draw(tmp_path, run):
    results = folder(tmp_path / "results", [made(workload="transformer-alcf")])
    status, _, error = run(results, "--csv", tmp_path / "a.csv", "--svg", tmp_path / "a.svg")
    assert (status, error.count("\n"), "leave --svg out" in error) == (2, 1, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results"]


def test_the_end_of_a_matrix_shows_every_sentence_and_the_first_tables(capsys):
    show(typed([made(), made(num_ranks=2, seconds=6.0)]))
    text = capsys.readouterr().out
    assert "Does every backend train the same thing?" in text
    assert "ratio to fastest" in text
    assert "efficiency (%)" not in text
    assert text.rstrip().endswith("one run gives no verdict, 6 do.")


def test_a_page_is_kept_up_to_date_until_interrupted(tmp_path, capsys, monkeypatch):
    results, page = folder(tmp_path / "results", []), tmp_path / "page.html"
    said = []

    def look(_):
        said.append((capsys.readouterr().out, page.exists() and 'http-equiv="refresh"' in page.read_text()))
        if len(said) == 3:
            raise KeyboardInterrupt
        if len(said) == 1:
            records.write(results / "one.json", *typed([made()]))

    monkeypatch.setattr(compare.time, "sleep", look)
    monkeypatch.setattr(sys, "argv", ["compare", str(results), "--html", str(page), "--watch"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert said == [(f"there is no record in {results}; waiting\n", False), (f"{page}: 1 run\n", True), ("", True)]
    assert 'http-equiv="refresh"' not in page.read_text()


def test_watching_without_a_page_is_refused(tmp_path, run):
    assert run(folder(tmp_path / "results", [made()]), "--watch")[::2] == (
        2,
        "error: --watch keeps a page up to date; say with --html FILE which\n",
    )


@pytest.mark.parametrize("option", ["--baseline", "--csv", "--markdown", "--predict", "--price", "--svg"])
def test_watching_refuses_all_but_the_page(option, tmp_path, run):
    results = folder(tmp_path / "results", [made()])
    status, _, error = run(results, "--html", tmp_path / "a.html", "--watch", option, "1")
    assert (status, error) == (2, f"error: --watch writes the page of --html and nothing else; leave out {option}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_two_exports_into_one_file_are_refused(tmp_path, run):
    results, path = folder(tmp_path / "results", [made()]), tmp_path / "a.txt"
    status, _, error = run(results, "--markdown", path, "--csv", results / ".." / "a.txt")
    assert (status, error.count("\n"), "--markdown and --csv are both" in error) == (2, 1, True)
    assert not path.exists()


def test_a_page_that_cannot_be_written_is_reported_and_raises_nothing(tmp_path, capsys):
    live.write_page(tmp_path / "not there" / "page.html", typed([made()]))
    live.write_page(tmp_path / "page.html", typed([made(), made(settings={"threads": 2}, repeat=1)]))
    first, second = capsys.readouterr().err.splitlines()
    assert "not there" in first
    assert "different settings" in second
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("setting", [{"timeline": True}, {"trace": "mpi"}, {"share_gpu": True}])
def test_traced_runs_are_left_out_and_counted(setting, tmp_path, run):
    profiled = made(seconds=5.0, stamp="20260102-000000", settings=setting)
    status, printed, _ = run(folder(tmp_path / "results", [made(seconds=9.0), profiled]))
    assert status == 0
    assert "ddp takes 4.000 s an epoch" in printed
    assert "1 of the runs were traced or shared a GPU (--share-gpu, --timeline, --trace), and are left out." in printed
    status, _, error = run(folder(tmp_path / "profiled", [profiled]))
    assert (status, error.count("\n")) == (2, 1)
    assert "all of these runs were traced" in error


def test_a_traced_run_that_failed_is_listed(tmp_path, run):
    failed = ended("failed", settings={"trace": "mpi"}, stamp="20260102-000000")
    assert "it broke" in run(folder(tmp_path / "results", [made(), failed]))[1]


def test_a_profiled_run_is_no_regression(tmp_path, run):
    old = folder(tmp_path / "old", repeats([10.0, 10.1, 10.2], stamp="20250101-000000"))
    profiled = repeats([20.0, 20.1, 20.2], settings={"timeline": True}, stamp="20260102-000000")
    assert run(folder(tmp_path / "new", [*repeats([10.0, 10.1, 10.2]), *profiled]), "--baseline", old)[0] == 0


def test_forecasts_are_a_section_after_that_on_scaling(tmp_path, run):
    results = folder(tmp_path / "results", [test_forecasts.record(1), test_forecasts.record(2)])
    status, printed, error = run(results, "--predict", "16,64", "--markdown", tmp_path / "a.md", "--html", tmp_path / "a.html")
    assert (status, error) == (0, "")
    assert "For a proposal: cnn, weak scaling, with ddp on" in printed
    for name in ("a.md", "a.html"):
        text = (tmp_path / name).read_text()
        places = [text.index(one) for one in ("How does each backend scale?", "What will more ranks do?", "What does each backend cost?")]
        assert places == sorted(places)
    assert "<h3>Throughput at more ranks <small>cnn, weak scaling</small></h3>" in (tmp_path / "a.html").read_text()


def test_forecasts_have_a_price_if_asked_for(tmp_path, run):
    results = folder(tmp_path / "results", [test_forecasts.record(1), test_forecasts.record(2)])
    assert run(results, "--predict", "16", "--price", "0.05", "--html", tmp_path / "a.html")[0] == 0
    assert "at 0.05 each" in (tmp_path / "a.html").read_text()
    for arguments, message in (
        (("--price", "0.05"), "--price is for a forecast; say with --predict RANKS of which sizes"),
        (("--predict", "16", "--price", "-1"), "--price is -1; it must be at least 0 and finite"),
    ):
        assert run(results, *arguments)[::2] == (2, f"error: {message}\n")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("16,0", "--predict has 0; a number of ranks is a whole number of at least 1"),
        ("many", "--predict is many; give whole numbers separated by commas, such as 16,64,1024"),
        ("", "--predict is empty; give numbers of ranks, such as 16,64,1024"),
        ("16", "these records have one size of each backend; a forecast takes two or more, to be tested on what it was not fitted to"),
    ],
)
def test_a_forecast_that_cannot_be_is_refused_before_anything_is_written(asked, message, tmp_path, run):
    results, page = folder(tmp_path / "results", [test_forecasts.record(1)]), tmp_path / "a.html"
    assert run(results, "--predict", asked, "--html", page)[::2] == (2, f"error: {message}\n")
    assert not page.exists()
