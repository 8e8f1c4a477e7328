"""A gradient that is not finite ends a run as diverged, whatever its library makes of it."""

import pytest

from tests.support.agreement_runs import SAME_TRAINING
from tests.support.running import train


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("backend", "arguments", "message"),
    [
        ("ddp", (), "the loss of step 4 of epoch 1 is nan, the first that is not finite, after the update of step 3;"),
        # It skips the step without a word, and its losses and parameters stay finite.
        ("deepspeed_zero", (), "a gradient of step 3 of epoch 1 is not finite"),
        pytest.param("deepspeed_zero", ("--zero-stage", 3), "a gradient of step 3 of epoch 1 is not finite", marks=pytest.mark.long),
    ],
)
def test_an_infinite_gradient_of_one_step_is_told(backend, arguments, message, tmp_path):
    status, record, _ = train(backend, 2, tmp_path, *SAME_TRAINING, "--epochs", 1, *arguments, fault="infinite_gradient")
    assert status == 1
    assert (record["status"], record["time_to_solution_seconds"], record["samples_per_second"]) == ("diverged", None, None)
    assert message in record["error"]
