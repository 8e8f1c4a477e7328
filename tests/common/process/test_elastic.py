"""Elastic Horovod: which errors report a lost rank; tests/launch/run/test_restart.py loses one."""

import pytest

from common.errors import UserError
from common.process import elastic

HorovodInternalError = type("HorovodInternalError", (Exception,), {})
UnknownError = type("UnknownError", (Exception,), {})


@pytest.mark.parametrize(
    ("problem", "is_loss"),
    [
        (HorovodInternalError("Read error: Connection reset by peer"), True),
        # TensorFlow's.
        (UnknownError("Read error [Op:HorovodAllreduce]"), True),
        (UnknownError("something else"), False),
        (UserError("horovodrun started 2 ranks, Horovod sees 1"), False),
        (RuntimeError("Horovod never all-reduces under Keras 3"), False),
    ],
)
def test_a_restart_follows_only_horovods_errors_for_a_lost_rank(problem, is_loss):
    assert elastic.is_loss(problem) == is_loss
