"""The line that shows how far a run is, and the time that is left."""

import pytest

from common.progress import Progress, format_line

START = Progress(1, 16, 0, 44, None, None, 0.0)


@pytest.mark.parametrize(
    ("progress", "seconds"),
    [
        (START, None),
        # In the first epoch there is no pace: its first steps take long, and an evaluation is still to come.
        (Progress(1, 2, 9, 10, 1.0, None, 300.0), None),
        (Progress(1, 2, 10, 10, 1.0, None, 3.0), None),
        # The first epoch has been evaluated.
        (Progress(1, 2, 10, 10, 1.0, 0.4, 6.0), 6),
        (Progress(2, 2, 5, 10, 1.0, 0.5, 9.0), 3),
        # Without a target there is no evaluation, and the first epoch is known to be done in the second.
        (Progress(2, 3, 10, 10, 1.0, None, 20.0), 10),
        # Rounded up: there is work left.
        (Progress(2, 2, 9, 10, 1.0, 0.5, 0.19), 1),
        # After the last step the last evaluation may be left, for which there is no measure.
        (Progress(2, 2, 10, 10, 1.0, 0.5, 9.0), None),
        (Progress(1, 1, 10, 10, 1.0, 0.5, 9.0), None),
    ],
)
def test_seconds_left_go_by_the_pace_so_far_once_there_is_one(progress, seconds):
    assert progress.seconds_left() == seconds


def test_a_run_that_is_started_directly_shows_a_line_for_a_person():
    line = "progress: epoch 3/16 step 22/44 loss 0.1234 accuracy 0.9694 elapsed 12.5 s left 68 s"
    assert format_line(Progress(3, 16, 22, 44, 0.1234, 0.9694, 12.5)) == line
    assert format_line(START) == "progress: epoch 1/16 step 0/44 loss - accuracy - elapsed 0.0 s left - s"
