"""The line that says how far a run is, written and read again."""

import pytest

from common.progress import Progress, format_line, read_line

START = Progress(1, 16, 0, 44, None, None, 0.0)
MIDDLE = Progress(3, 16, 22, 44, 0.1234, 0.9694, 12.5)


@pytest.mark.parametrize("progress", [START, MIDDLE, Progress(1, 1, 1, 1, 2.3026, None, 1.0), Progress(16, 16, 44, 44, 0.0, 1.0, 1234.5)])
def test_a_line_is_read_as_it_was_written(progress):
    assert read_line(format_line(progress)) == progress


@pytest.mark.parametrize("loss", [float("inf"), 1e12])
def test_a_run_that_goes_astray_still_tells_how_far_it_is(loss):
    assert read_line(format_line(MIDDLE._replace(loss=loss))).loss == loss


def test_a_loss_that_is_no_number_is_read_as_one():
    assert str(read_line(format_line(MIDDLE._replace(loss=float("nan")))).loss) == "nan"


def test_what_the_launcher_writes_before_a_line_does_not_matter():
    assert read_line(f"[0] {format_line(MIDDLE)}") == MIDDLE


@pytest.mark.parametrize(
    "line",
    [
        "",
        "progress:",
        "record: results/here/run.json",
        "progress: half way",
        "epoch 1/16 step 0/44 loss - accuracy - elapsed 0.0 s left - s",
    ],
)
def test_any_other_line_is_none(line):
    assert read_line(line) is None


@pytest.mark.parametrize(
    ("progress", "seconds"),
    [
        (START, None),
        (Progress(1, 2, 5, 10, 1.0, None, 3.0), 9.0),
        (Progress(2, 2, 5, 10, 1.0, 0.5, 9.0), 3.0),
        (Progress(2, 2, 10, 10, 1.0, 0.5, 9.0), 0.0),
    ],
)
def test_seconds_left_go_by_the_pace_so_far(progress, seconds):
    assert progress.seconds_left() == (None if seconds is None else pytest.approx(seconds))


def test_the_line_tells_the_seconds_left():
    assert format_line(Progress(1, 2, 5, 10, 1.0, None, 3.0)).endswith("elapsed 3.0 s left 9 s")
