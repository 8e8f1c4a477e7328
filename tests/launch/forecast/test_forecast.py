"""What python -m launch.forecast prints and writes, and its mistakes, each in one line with exit status 2."""

import json
import shutil

import pytest

from tests.support.forked import run_module
from tests.support.mistakes import expect_refused
from tests.support.running import BIN, ROOT, completed

PROGRAM = "launch.forecast.__main__"
TWO_BACKENDS = "gpus,samples_per_second,backend\n1,100,ddp\n2,196,ddp\n4,384,ddp\n1,60,fsdp\n2,110,fsdp\n4,210,fsdp\n"
REFERENCE = ROOT / "results" / "reference"


@pytest.fixture
def table(tmp_path):
    """A function that writes a table and returns its path."""

    def written(text):
        (tmp_path / "table.csv").write_text(text)
        return tmp_path / "table.csv"

    return written


def forecast(*arguments):
    """What the program prints as JSON."""
    status, printed, error = run_module(PROGRAM, *arguments, "--json")
    assert (status, error) == (0, "")
    return json.loads(printed)


def test_a_table_is_forecast_on_one_screen(table):
    done = completed(BIN / "python", "-m", "launch.forecast", table(TWO_BACKENDS), "--gpus", "64,16", "--gpus-per-node", "4")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) < 24
    assert "Measure 8 GPUs next" in done.stdout
    assert "measure 8 GPUs, as your nodes have 4" in done.stdout
    assert "calibrated on 53 published tables" in done.stdout
    assert "efficiency falls below 0.8 at" in done.stdout


def test_value_efficiency_and_band_of_a_size(table):
    first, second, *_ = forecast(table(TWO_BACKENDS), "--gpus", "64,16")["forecasts"]
    assert (first["size"], second["size"], first["backend"], first["unit"]) == (16, 64, "ddp", "GPUs")
    assert first["low"] < first["value"] < first["high"] < 16 * 100 * 1.2
    assert first["efficiency"] == pytest.approx(first["value"] / 16 / 100)
    # It lost 4 % in two doublings.
    assert 0.9 < first["efficiency"] < 0.96
    assert second["high"] / second["low"] > first["high"] / first["low"]


def test_seconds_per_epoch_are_of_strong_scaling_unless_the_table_says_otherwise(table):
    texts = ("ranks,seconds_per_epoch\n1,11\n2,6\n4,3.5\n", "ranks,seconds_per_epoch,scaling\n1,11,weak\n2,6,weak\n4,3.5,weak\n")
    strong, weak = (forecast(table(text), "--gpus", "8")["forecasts"][0] for text in texts)
    assert (strong["training"], weak["training"]) == ("strong scaling", "weak scaling")
    # 1 s stays, and 10 s are divided.
    assert strong["value"] == pytest.approx(2.25, rel=0.03)
    assert weak["value"] < 2.1
    assert strong["low"] < strong["value"] < strong["high"]
    assert strong["unit"] == "ranks"


def test_where_the_efficiency_falls_below_a_limit(table):
    below = forecast(table(TWO_BACKENDS), "--efficiency", "0.9")["efficiency_below"]
    ddp, fsdp = below
    assert ddp["earliest"] < ddp["size"] < (ddp["latest"] or 1000)
    # It was measured.
    assert (fsdp["earliest"], fsdp["size"], fsdp["latest"]) == (4, 4, 4)
    assert [row["size"] for row in forecast(table(TWO_BACKENDS), "--efficiency", "0.1")["efficiency_below"]] == [None, None]


def test_the_size_to_measure_next_narrows_the_band_most(table):
    path = table(TWO_BACKENDS)
    (ddp, _), larger = (forecast(path, "--gpus", sizes, "--gpus-per-node", "4")["measure_next"] for sizes in ("64,128", "8,16"))
    assert (ddp["size"], larger[0]["size"]) == (32, 8)
    assert forecast(path, "--gpus", "8")["measure_next"] == []
    measured = forecast(table(TWO_BACKENDS + "32,2900,ddp\n"), "--gpus", "64,128", "--gpus-per-node", "4")["forecasts"][1]
    assert measured["high"] / measured["low"] == pytest.approx(ddp["width_then"])
    assert ddp["width_then"] < ddp["width_now"] / 1.5


def copy_records(machine, folder, *runs):
    """Copies the first record of each of some runs, such as cnn-ddp-n1."""
    folder.mkdir()
    for run in runs:
        shutil.copy(sorted((REFERENCE / machine).glob(f"*-{run}-*"))[0], folder)
    return folder


def test_records_are_forecast_by_workload_and_backend_(tmp_path):
    runs = [f"{workload}-ddp-n{size}" for workload in ("cnn", "transformer") for size in (1, 2)]
    folder = copy_records("two-cores", tmp_path / "records", *runs, "cnn-single-n1")
    answer = forecast(folder)
    assert [(row["training"], row["backend"], row["size"]) for row in answer["forecasts"]] == [
        (f"{workload}, weak scaling", "ddp", size) for workload in ("cnn", "transformer") for size in (4, 8, 16)
    ]
    assert answer["notes"][-1] == "Left out, as only one size was measured: single."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpus,samples_per_second\n4,100\n4,101\n", "has one size of each backend"),
        ("gpus,samples_per_second\n4,fast\n8,200\n", "row 2: samples_per_second is 'fast'; it must be a positive number"),
        ("gpus,samples_per_second\n0,100\n8,200\n", "row 2: gpus is '0'; it must be a positive number"),
        ("gpus,samples_per_second\n4,100\n8,0\n", "row 3: samples_per_second is '0'"),
        ("gpus,samples_per_second\n4,100\n8,nan\n", "row 3: samples_per_second is 'nan'"),
        ("gpus,samples_per_second\n4,100\n8\n", "row 3: samples_per_second is ''"),
        ("gpus,samples_per_second\n1.5,100\n8,200\n", "row 2: gpus is 1.5; it must be a whole number"),
        ("gpus,samples_per_second,machine\n4,100,a\n8,200,b\n", "has the machines a and b; forecast each by itself"),
        ("gpus,samples_per_second,seconds_per_epoch\n4,100,\n8,,3\n", "has both of samples_per_second and seconds_per_epoch"),
        ("gpus\n4\n8\n", "has neither of samples_per_second and seconds_per_epoch"),
        ("", "is empty; it needs a header"),
        ("gpus,samples_per_second\n", "is empty; it needs a header"),
        ("gpus,speed\n4,100\n8,200\n", "has the unknown column 'speed'; columns are gpus, ranks,"),
        ("gpus,samples_per_second,gpus\n4,100,4\n8,200,8\n", "has a column twice; its header is gpus,samples_per_second,gpus"),
        ("gpus,samples_per_second\n4,100,ddp\n8,200\n", "has the unknown column ''"),
        ("gpus,samples_per_second,scaling\n4,100,linear\n8,200,weak\n", "scaling is 'linear'; it must be weak or strong"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_table_is_one_line(table, text, message):
    expect_refused(message, PROGRAM, table(text))


def test_what_is_no_table_is_refused_in_one_line(tmp_path):
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    expect_refused("is not a CSV file in UTF-8", PROGRAM, tmp_path / "binary")
    expect_refused("is no scaling table", PROGRAM, tmp_path / "none")
    expect_refused("there is no record in", PROGRAM, tmp_path)
    (tmp_path / "both").mkdir()
    for machine in ("zen5-default", "two-cores"):
        copy_records(machine, tmp_path / "both" / machine, "cnn-ddp-n1", "cnn-ddp-n2")
    expect_refused("forecast each by itself", PROGRAM, tmp_path / "both")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--gpus=4", "give sizes above 4, the largest that was measured"),
        ("--gpus=8,many", "--gpus has 'many'; give numbers of GPUs such as 64,128"),
        ("--gpus=,", "--gpus has ''"),
        ("--efficiency=1.5", "--efficiency is 1.5; it must be above 0 and at most 1"),
        ("--gpus-per-node=0", "--gpus-per-node is 0"),
    ],
)
def test_a_mistaken_option_is_refused_in_one_line(table, option, message):
    expect_refused(message, PROGRAM, table(TWO_BACKENDS), option)
