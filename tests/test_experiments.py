"""What the pages say of committed experiments: no difference only where a whole interval is within the margin."""

import re
from collections import Counter

import pytest

from common.data.sharding import STEPS_VARIABLE
from common.words import listed
from launch.report.questions import first
from launch.report.questions.first import SLOWER
from launch.report.ratio_text import EQUAL, NO_DIFFERENCE, equality, interval
from launch.report.runs import comparisons
from launch.report.statistics import MARGIN, Ratio
from tests.support.running import BIN, ROOT, completed

EXPERIMENTS = ROOT / "results" / "reference" / "experiments"


def rows_of(name):
    """The rows of the tables of an experiment, each a list of cells, without those of headings."""
    lines = [line for line in (EXPERIMENTS / name).read_text().splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rules = [number for number, row in enumerate(rows) if set(row[0]) == {"-"}]
    return [row for number, row in enumerate(rows) if number not in rules and number + 1 not in rules]


def ratio_of(value, interval):
    """The ratio of six pairs of a cell and of the cell of its interval."""
    low, high = interval.split(" to ")
    return Ratio(float(value), float(low), float(high), 6, 6, True)


def verdict(ratio):
    """How the sides of a ratio of epochs compare, in words."""
    return equality(ratio) or (SLOWER if ratio.value > 1 else "faster")


def text_of(page):
    return " ".join(page.read_text().split())


def test_what_turns_change_is_said_by_how_many_intervals_are_within_the_margin():
    # The second table has shares of epochs.
    ratios = [ratio_of(*row[2:4]) for row in rows_of("turns.txt") if len(row) == 7 and row[2] != "-"]
    num_equal = sum(ratio.is_equal for ratio in ratios)
    sentence = f"of the {len(ratios)} intervals of a backend's time with turns to that without, {num_equal} are within ±{100 * MARGIN:g} %"
    assert sentence in text_of(ROOT / "launch" / "README.md")


def test_what_settings_of_libraries_change_is_said_by_their_verdicts():
    rows = [row for row in rows_of("knobs.txt") if row[0] != "deepspeed_zero"]
    assert [row[6] for row in rows] == [verdict(ratio_of(*row[4:6])) for row in rows]
    num = Counter(row[6] for row in rows)
    assert set(num) == {SLOWER, EQUAL, NO_DIFFERENCE}
    sentence = f"are {SLOWER}, {num[EQUAL]} makes {EQUAL}, and {num[NO_DIFFERENCE]} are open"
    page = text_of(ROOT / "frameworks" / "README.md")
    assert re.search(rf"Of {len(rows)} \[.*?\]\(.*?knobs.txt\) of DDP, Horovod and TensorFlow, {num[SLOWER]} {sentence}", page)


def test_the_approximate_variants_that_differ_in_time_are_those_of_the_committed_records(committed):
    (comparison,) = comparisons(committed("approximate"))
    fastest, *others = first.results_of(comparison.of_size(2))
    differing = [place for place in others if not place.entry.exact and place.ratio.verdict]
    assert (fastest.entry.backend, len(differing)) == ("horovod_torch", 2)
    page = text_of(ROOT / "frameworks" / "README.md")
    for place in differing:
        assert re.search(rf"`{place.entry.backend}`(, with one worker,)? {place.ratio.value:.2f} \({interval(place.ratio)}\)", page)


def test_what_a_cnn_in_a_users_file_takes_is_that_of_the_built_in_one():
    ratios = [float(row[4]) for row in rows_of("own_cnn.txt")]
    assert all(0.97 <= ratio <= 1.03 for ratio in ratios)
    assert f"takes [{' and '.join(f'{ratio:.2f}' for ratio in ratios)}](" in text_of(ROOT / "frameworks" / "own_model" / "README.md")


def test_the_targets_are_verified_on_seeds_that_no_committed_run_has(committed):
    options = re.findall(r"--first-seed (\d+) --seeds (\d+)", (EXPERIMENTS / "targets.txt").read_text())
    verified = {seed for first, num_seeds in options for seed in range(int(first), int(first) + int(num_seeds))}
    trained = {record.settings.seed for path in EXPERIMENTS.parent.iterdir() if path.is_dir() for record in committed(path.name)}
    assert {1, 12, 101} <= trained
    assert len(options) == 2
    assert verified.isdisjoint(trained)


def test_the_epochs_to_the_targets_are_those_of_the_new_seeds():
    rows = rows_of("targets.txt")
    assert [row[2] for row in rows] == 2 * ["1", "2", "4", "8"]
    of_cnn, of_transformer = (listed([row[3].replace("-", " to ") for row in part]) for part in (rows[:4], rows[4:]))
    text = text_of(ROOT / "common" / "README.md")
    assert f"the CNN takes {of_cnn} epochs, and the Transformer" in text
    assert f"takes {of_transformer}." in text


@pytest.mark.matrix
def test_the_search_of_targets_has_a_row_for_each_size():
    options = ("--sizes", 1, 2, "--seeds", 1, "--targets", 0.01, 0.9, "--settings=--epochs 2")
    done = completed(BIN / "python", "-m", "tests.bench.targets", "cnn", *options, variables={STEPS_VARIABLE: "2"})
    rows = "| 0.004 | 1 | 1 | none |\n| 0.004 | 2 | 1 | none |\n"
    assert (done.returncode, done.stdout.endswith(rows)) == (0, True), done.stdout + done.stderr
