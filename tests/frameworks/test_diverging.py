"""A gradient that is not finite ends a run as diverged, whatever its library makes of it."""

import pytest

from tests.support.agreement_runs import CNN

RUN = CNN._replace(precision="fp32", fault="infinite_gradient")


@pytest.mark.matrix
@pytest.mark.runs(needed=lambda backend, message: [(backend, 2, RUN)])
@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("ddp", "the loss of step 4 of epoch 1 is nan, the first that is not finite, after the update of step 3;"),
        # It skips the step without a word, and its losses and parameters stay finite.
        ("deepspeed_zero", "a gradient of step 3 of epoch 1 is not finite"),
    ],
)
def test_an_infinite_gradient_of_one_step_is_told(backend, message, trained):
    record, _ = trained(backend, 2, RUN)
    assert (record["status"], record["time_to_solution_seconds"], record["samples_per_second"]) == ("diverged", None, None)
    assert message in record["error"]
