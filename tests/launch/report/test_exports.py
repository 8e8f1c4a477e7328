"""The exports of the answer: every run and every number, in valid CSV, Markdown, SVG and terminal output."""

import csv as csv_reader
import io
import re

import pytest
from rich.console import Console

from common.errors import UserError
from launch.report import collect, summary
from launch.report.export import csv, files, markdown, svg, terminal
from tests.support.answers import answered
from tests.support.made_records import ended, made, noisy, repeats, step_breakdown, tensor_bytes
from tests.support.running import ROOT

RECORDS = [
    *repeats([9.0, 9.5, 10.0]),
    *repeats([6.0, None, 5.0], num_ranks=2),
    ended("failed", num_ranks=4) | {"error": "a | b\nc <d> *e*"},
]
ANSWER = answered(RECORDS)


def test_csv_has_every_run_with_all_its_samples():
    rows = list(csv_reader.DictReader(io.StringIO(csv.text(ANSWER))))
    assert len(rows) == len(RECORDS)
    assert [row["time_to_solution_seconds"] for row in rows] == ["9.0", "9.5", "10.0", "6.0", "", "5.0", ""]
    assert rows[0]["losses"].split() == ["3.0", "2.0", "1.0", "0.5"]
    assert [float(step) for step in rows[0]["step_seconds"].split()] == RECORDS[0]["step_seconds"]
    assert (rows[6]["status"], rows[6]["error"]) == ("failed", "a | b\nc <d> *e*")


def test_csv_has_keys_of_only_some_records():
    rows = list(csv_reader.DictReader(io.StringIO(csv.text(answered([made() | {"energy_joules": 5.0}, made(num_ranks=2)])))))
    assert [row["energy_joules"] for row in rows] == ["5.0", ""]


def test_csv_has_every_number_of_a_record():
    rows = list(csv_reader.DictReader(io.StringIO(csv.text(answered([made(resumed_after_epochs=0, energy_source="RAPL")])))))
    values = {
        key: rows[0][key] for key in ("samples_dropped_per_epoch", "samples_padded_per_epoch", "resumed_after_epochs", "energy_source")
    }
    assert list(values.values()) == ["1", "0", "0", "RAPL"]


def test_csv_has_the_step_breakdown_with_a_value_for_each_rank_in_a_cell():
    rows = list(csv_reader.DictReader(io.StringIO(csv.text(answered([made(num_ranks=2, step_breakdown=step_breakdown()), made()])))))
    assert [row["step_breakdown_compute_seconds"] for row in rows] == ["", "0.006 0.006"]
    assert [row["step_breakdown_bus_bytes_per_second"] for row in rows] == ["", "500000000.0"]


def test_csv_has_the_bytes_of_a_rank_as_counted_and_as_expected():
    run = made(num_ranks=2, step_breakdown=step_breakdown(), tensor_bytes_by_rank=tensor_bytes((3, 2, 1), (3, 3, 1)))
    counted, older = csv_reader.DictReader(io.StringIO(csv.text(answered([run, made(num_ranks=2, repeat=1)]))))
    names = ("state_bytes", "sent_per_step_bytes", "expected_state_bytes", "expected_sent_per_step_bytes")
    assert [counted[name] for name in names] == ["7", "5000000.0", "14398584.0", "4799528.0"]
    assert [older[name] for name in names[:2]] == ["", ""]


def test_csv_has_a_column_for_every_measurement_of_a_record():
    record = made()
    columns = next(csv_reader.reader(io.StringIO(csv.text(answered([record])))))
    measured = {key for key, value in record.items() if isinstance(value, float | list)}
    assert {"losses", "learning_rates", "accuracy"} < measured
    assert measured - set(columns) <= {"pids_by_rank"}


def test_csv_marks_unknown_samples():
    text = csv.text(answered([made(losses=[1.0, None, 2.0])]))
    assert next(csv_reader.DictReader(io.StringIO(text)))["losses"] == "1.0 - 2.0"


def test_markdown_has_each_question_and_tables_of_equal_width():
    text = markdown.text(ANSWER)
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == [*(section.question for section in ANSWER.sections), "Notes"]
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
    tables = sum(len(markdown.tables(ANSWER, section)) for section in ANSWER.sections)
    assert len(re.findall(r"^\|(?: -+:? \|)+$", text, re.MULTILINE)) == tables


def test_markdown_has_the_brief_columns_beside_those_of_the_first_question():
    answer = answered([made(step_breakdown=step_breakdown(num_ranks=1)), ended("failed", num_ranks=2)])
    table, *more = markdown.tables(answer, answer.sections[0])
    brief = [column for section in answer.sections for table in section.tables for column in table.columns if column.brief]
    assert (more, list(table.columns[-len(brief) :])) == ([], brief)
    ran, failed = (dict(zip([column.name for column in table.columns], row, strict=True)) for row in table.rows)
    names = ("efficiency (%)", "peak memory per rank (MiB)", "exposed communication (ms)")
    assert [ran[name] for name in names] == [100.0, 300.0, pytest.approx(3.0)]
    assert [failed[name] for name in names] == [None, None, None]


def test_markdown_has_the_table_to_choose_by_whole():
    answer = answered([made(step_breakdown=step_breakdown(num_ranks=1))])
    cost = next(section for section in answer.sections if section.key == "cost")
    assert markdown.tables(answer, cost) == cost.tables[:1]
    assert "| wrap in DistributedDataParallel |" in markdown.text(answer)


def test_markdown_leaves_long_tables_and_details_of_oversubscribed_entries_to_the_command_that_it_names():
    runs = [noisy(speeds, oversubscribed=True, repeat=repeat) for repeat, speeds in enumerate(([100.0, 100.0], [100.0, 50.0]))]
    answer = answered([run | {"num_ranks": 2, "step_breakdown": step_breakdown()} for run in runs])
    tables = {section.key: (len(section.tables), len(markdown.tables(answer, section))) for section in answer.sections}
    assert {key: tables[key] for key in ("first", "cost", "same", "quiet")} == {
        "first": (1, 1),
        "cost": (2, 0),
        "same": (1, 0),
        "quiet": (1, 0),
    }
    assert markdown.tables(answer, answer.sections[0])[0].columns == answer.sections[0].tables[0].columns
    assert markdown.text(answer).splitlines()[2] == markdown.ALL_TABLES


def test_the_committed_report_is_that_of_the_committed_records():
    matrices = re.search(r"two-cores/(\d+-){([\d,]+)}-\*", (ROOT / "results" / "README.md").read_text())
    folder = ROOT / "results" / "reference" / "two-cores"
    paths = [path for begun in matrices[2].split(",") for path in folder.glob(f"{matrices[1]}{begun}-*")]
    assert markdown.text(summary.answer(*collect.collect(paths))) == folder.with_suffix(".md").read_text()


def test_markdown_escapes_text_from_records():
    assert r"| a \| b c \<d\> \*e\* |" in markdown.text(ANSWER)
    assert markdown.escaped("see [it](u) ![i](u) &lt; ~~x~~") == r"see \[it\](u) \!\[i\](u) \&lt; \~\~x\~\~"


def test_control_codes_in_records_are_removed(capsys):
    answer = answered([made() | {"workload": "cnn\x1b[1m"}, ended("failed", num_ranks=2) | {"error": "\x1b[31mred\x07 \ud800"}])
    terminal.show(answer)
    for text in (capsys.readouterr().out, markdown.text(answer)):
        assert "red" in text
        assert not re.search(r"[\x07\x1b\ud800]", text)


def test_the_terminal_shows_every_question_and_ends_with_the_headline():
    console = Console(file=io.StringIO(), width=300, force_terminal=True, no_color=True, highlight=False)
    terminal.show(ANSWER, console)
    text = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())
    places = [text.index(section.question) for section in ANSWER.sections]
    assert places == sorted(places)
    assert text.rstrip().endswith(ANSWER.headline[-1])
    for section in ANSWER.sections:
        assert all(table.title in text for table in section.tables)


@pytest.mark.parametrize("width", [60, 80, 180])
def test_a_narrow_terminal_truncates_no_cell_and_names_the_columns_left_out(width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, no_color=True, highlight=False)
    terminal.show(answered([*repeats([9.0, 9.5, 10.0], backend="deepspeed_zero"), made()]), console, tables=("first", "same"))
    text = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())
    assert "…" not in text
    assert "deepspeed_zero" in text
    assert max(len(line) for line in text.splitlines() if line.startswith(("│", "┃"))) <= width
    left_out = ["".join(names.split()) for names in re.findall(r"terminal too narrow for:[^│┃┏]*", text)]
    assert any("samples/s" in names for names in left_out) == (width < 180)


def test_a_long_error_wraps_between_words():
    console = Console(file=io.StringIO(), width=90, force_terminal=True, no_color=True, highlight=False)
    error = "the connection was closed by its peer " * 8
    terminal.show(answered([made(), ended("failed", num_ranks=2) | {"error": error}]), console, tables=("failed",))
    text = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())
    assert "too narrow" not in text or "reason" not in text.partition("too narrow")[2].partition("\n")[0]
    assert text.count("connection") == 8


def test_the_short_form_has_every_sentence_and_the_chosen_tables(capsys):
    terminal.show(ANSWER, tables=("first",))
    text = capsys.readouterr().out
    assert all(sentence in text for section in ANSWER.sections for sentence in section.sentences)
    assert "ratio to fastest" in text
    assert "efficiency (%)" not in text


def test_nothing_is_truncated_without_a_terminal(capsys):
    terminal.show(ANSWER)
    text = capsys.readouterr().out
    assert "…" not in text
    assert "a | b" in text


@pytest.mark.parametrize(
    ("name", "why"), [("folder", "is a folder"), ("file/report.html", "cannot be written"), ("none/report.html", "cannot be written")]
)
def test_a_path_that_cannot_be_written_is_refused_with_its_option(name, why, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=f"--html .*{why}"):
        files.check(tmp_path / name, "--html")


def test_a_path_is_checked_without_creating_it_and_written_atomically(tmp_path):
    path = tmp_path / "report.md"
    files.check(path, "--markdown")
    assert list(tmp_path.iterdir()) == []
    files.write(path, "one")
    files.check(path, "--markdown")
    files.write(path, "two")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("report.md", "two")]


def test_a_lone_surrogate_is_replaced(tmp_path):
    files.write(tmp_path / "report.md", "half \ud800 a character")
    assert (tmp_path / "report.md").read_text() == "half ? a character"


def test_the_picture_has_every_comparison_without_oversubscribed_entries():
    strong = {"scaling": "strong", "workload_digest": "e" * 64}
    text = svg.text(answered([made(), made(num_ranks=8, seconds=77.0, oversubscribed=True), made(seconds=33.0, **strong)]))
    assert "cnn, weak scaling" in text
    assert "cnn, strong scaling" in text
    assert "33.00 s" in text
    assert "77.00 s" not in text
