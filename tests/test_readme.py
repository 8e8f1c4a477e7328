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


REPORT = (ROOT / "results" / "reference" / "two-cores.md").read_text().replace("\\_", "_")
RESULTS = README.split("## Results")[1].split("\n## ")[0]


def row_of(backend, column, text=REPORT):
    """The row, {column: cell}, of a backend at 2 ranks in the first table of a text that has the column."""
    head = next(cells for cells in cells_of(text, 7) if column in cells)
    rows = (dict(zip(head, cells, strict=True)) for cells in cells_of(text, 7) if len(cells) == len(head))
    return next(row for row in rows if (row["backend"], row["ranks"]) == (backend, "2"))


def test_the_results_are_those_of_the_committed_report():
    tables = dict(zip(("cnn", "transformer"), REPORT.split("\n### transformer, weak scaling\n"), strict=True))
    results = [cells for cells in cells_of(RESULTS, 7) if cells[0] in tables]
    assert len(results) == 10
    for workload, backend, *values in results:
        row = row_of(backend, "time to solution (s)", tables[workload])
        against = row["ratio to fastest"] + ("" if row["95 % interval"] == "-" else f" ({row['95 % interval']})")
        exposed = f"{float(row['exposed communication (ms)']):.1f} ({row['exposed, 95 % interval (ms)']})"
        assert values == [row["time to solution (s)"], row["with start-up (s)"], against, row["speed-up over single"], exposed]


def test_the_parts_of_differences_are_those_of_the_committed_report():
    rows = [cells for cells in cells_of(RESULTS, 3) if " / " in cells[0]]
    assert len(rows) == 6
    for part, *values in rows:
        label, above, below = re.fullmatch("(.*): (.*) / (.*)", part.replace("`", "")).groups()
        factor, _, at_one_rank = label.partition(", ")
        for workload, value in zip(("cnn", "transformer"), values, strict=True):
            at = f"- {workload}, weak scaling, {at_one_rank or '2 ranks'}, .* the {factor}'s part: "
            (sentence,) = re.findall(rf"^{at}.*", REPORT, re.M)
            ratio, interval = value.split(" ", 1)
            told = rf"{above} takes {ratio} times {below}'s \((no difference [^,]*, )?{re.escape(interval[1:])}"
            assert re.search(told, sentence), (part, value)


def test_every_figure_of_the_sentences_on_the_results_is_in_the_committed_report():
    figures = [figure for sentence in RESULTS.split("\n- ")[1:] for figure in re.findall(r"\d+\.\d+", sentence.split("\n\n")[0])]
    assert len(figures) > 6
    assert set(figures) <= set(re.findall(r"\d+\.\d+", REPORT))


def test_the_sentences_on_the_results_are_those_of_the_committed_report():
    with_startup = re.findall(r"With start-up the lowest time is (\S+) s, (\S+)\.", REPORT)
    assert len({backend for _, backend in with_startup}) == 1
    assert (
        "With start-up `{}` has the lowest times ({} and\n  {} s)".format(with_startup[0][1], *(seconds for seconds, _ in with_startup))
        in RESULTS
    )
    costs = re.findall(r"horovod_torch@gloo for horovod_torch costs (\S+) times what ddp for ddp@mpi costs \((.*?)\)", REPORT)
    (_, of_cnn), (ratio, interval) = costs
    assert of_cnn.startswith("no difference shown, ")
    assert f"loses {ratio} times as much by Gloo as DDP on the Transformer ({interval}); on the CNN no difference is shown." in RESULTS
    assert re.search(r"The machine's speed was within 5 % of its median beside \d+ of \d+ runs\.", REPORT)[0] in RESULTS
    columns = "state per rank (MiB)", "peak memory per rank (MiB)"
    memory = [row_of(backend, column)[column] for column in columns for backend in ("deepspeed_zero", "ddp")]
    assert "ZeRO holds {} MiB of state on the CNN, DDP {}; peak memory is {} against {}.".format(*memory) in RESULTS
    ratios = re.findall(r"2 ranks: horovod_tf is fastest, \S+ s an epoch; (\S+) times as fast as ddp@mpi", REPORT)
    assert "per epoch {} (CNN) and {} times as fast as `ddp@mpi`".format(*ratios) in RESULTS
