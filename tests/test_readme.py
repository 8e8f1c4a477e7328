"""The commands of the README work, and it leads to what a reader looks for. test_pages.py checks what all pages point to."""

import re
import shlex

import pytest

from common import backends
from tests.support.running import ROOT, completed

README = (ROOT / "README.md").read_text()
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines() if line.strip()]


# What a command is run with besides, so that it takes less time: other tests train every workload with every backend, and a test of
# the tests has only to find them.
SHORTER = {
    "launch/matrix.sh 1 2": ["--epochs", "1", "--backends", "single,ddp", "--workloads", "cnn"],
    "tests/run.sh": ["--collect-only", "-q"],
}


@pytest.mark.matrix
@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_readme_run(checkout, command):
    words = shlex.split(command, comments=True)
    done = completed("bash", "-c", shlex.join([*words, *SHORTER.get(shlex.join(words), [])]), cwd=checkout, seconds=1500)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_is_short():
    assert (len(README.splitlines()) <= 120, len(README.split()) <= 1200) == (True, True)


def test_the_readme_gives_the_two_commands_first():
    assert COMMANDS[:2] == ["launch/matrix.sh 1 2", "tests/run.sh"]


def test_the_readme_names_every_backend_of_the_default_matrix_and_its_page_every_one():
    assert [name for name in backends.chosen(None) if f"`{name}`" not in README] == []
    assert [name for name in backends.declared() if f"| `{name}` |" not in (ROOT / "frameworks" / "README.md").read_text()] == []


def test_a_key_of_the_record_and_a_new_backend_are_two_hops_away():
    assert "communication_exposed_seconds" in README
    assert "communication_exposed_seconds`" in (ROOT / "results" / "README.md").read_text()
    assert "FSDP" in README
    assert "## Add a backend" in (ROOT / "frameworks" / "README.md").read_text()


def cells_of(text, num_columns):
    """The cells of each row of the tables in Markdown that have this many columns or more."""
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    return [cells for cells in rows if len(cells) >= num_columns]


def test_the_results_are_those_of_the_committed_report():
    report = (ROOT / "results" / "reference" / "two-cores.md").read_text().replace("\\_", "_")
    tables = dict(zip(("cnn", "transformer"), report.split("\n### transformer, weak scaling\n"), strict=True))
    head = next(cells for cells in cells_of(report, 15) if cells[0] == "ranks")
    results = [cells for cells in cells_of(README, 7) if cells[0] in tables]
    assert len(results) == 12
    for workload, backend, seconds, with_startup, ratio, speed_up, exposed in results:
        cells = next(cells for cells in cells_of(tables[workload], 15) if cells[:2] == ["1" if backend == "single" else "2", backend])
        row = dict(zip(head, cells, strict=True))
        against = row["ratio to fastest"] + ("" if row["95 % interval"] == "-" else f" ({row['95 % interval']})")
        added = f"{float(row['exposed communication (ms)']):.1f} ({row['exposed, 95 % interval (ms)']})"
        assert (seconds, with_startup) == (row["time to solution (s)"], row["with start-up (s)"])
        if backend != "single":
            assert (ratio, speed_up, exposed) == (against, row["speed-up over single"], added)
    agreeing = re.findall(r"give the same verdict on (\d+) of (\d+) pairs", report)
    assert "{} of {} pairs".format(*(sum(map(int, counts)) for counts in zip(*agreeing, strict=True))) in README


def test_every_figure_of_the_sentences_on_the_results_is_in_the_committed_report():
    report = (ROOT / "results" / "reference" / "two-cores.md").read_text()
    sentences = README.split("## Results")[1].split("\n## ")[0].split("\n- ")[1:]
    figures = [figure for sentence in sentences for figure in re.findall(r"\d+\.\d+", sentence.split("\n\n")[0])]
    assert len(figures) > 8
    in_report = set(re.findall(r"\d+\.\d+", report))
    assert [figure for figure in figures if figure not in in_report] == []
    intervals = [interval for sentence in sentences for interval in re.findall(r"\d\.\d\d to \d\.\d\d", sentence)]
    assert [interval for interval in intervals if f"95 % interval {interval}" not in report] == []
