"""Workloads under settings: what sizes change, what is refused, and the learning rate of each step."""

import dataclasses
import math

import numpy as np
import pytest

from common import workloads
from common.config import Settings
from common.errors import UserError
from common.model.decoder import Decoder
from common.model.description import parameters_of
from common.workloads import SCHEDULES, scheduled_rates

STEPS = 14
SIZES = {"layers": 3, "width": 96, "heads": 4, "context": 32}


def workload(name="transformer", **sizes):
    return workloads.workload_of(Settings(workload=name, **sizes))


def num_parameters(model):
    return sum(math.prod(parameter.shape) for parameter in parameters_of(model).values())


def test_the_model_has_the_sizes_and_all_else_of_the_workload():
    assert workload(**SIZES).model == Decoder(96, 4, 3, 32)
    assert workload(**SIZES)._replace(model=workload().model) == workload()
    assert workload("transformer-gpt2", layers=2).model == Decoder(768, 12, 2, 1024, tied=True)


def test_each_size_counts():
    layer = num_parameters(workload(**SIZES | {"layers": 4}).model) - num_parameters(workload(**SIZES).model)
    # Four matrices of the attention, three of SwiGLU with 256 for 8/3 of 96, and two norms.
    assert layer == 4 * 96**2 + 3 * 96 * 256 + 2 * 96
    assert workload(**SIZES | {"context": 64}).model.training_flops() > 2 * workload(**SIZES).model.training_flops()


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("cnn", {"layers": 2}, "--layers is not for cnn, whose model has no such size"),
        ("resnet50", {"width": 32}, "--width is not for resnet50,"),
        ("transformer", {"heads": 64}, "--width 64 is not an even width for each of 64 heads"),
        ("transformer", {"layers": 129}, "--layers is 129; it must be at least 1 and at most 128"),
        ("transformer", {"context": 0}, "--context is 0; it must be at least 1"),
        ("cnn", {"target": 97.0}, "--target is 97; it must be above 0 and at most 1, such as 0.97"),
    ],
)
def test_what_a_model_has_not_is_refused_in_one_line(name, sizes, message):
    with pytest.raises(UserError) as refused:
        workloads.resolve(Settings(workload=name, **sizes), 1)
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("base", "n", "warmup", "steps"), [(0.01, 8, 3, 14), (0.001, 64, 1, 100), (0.01, 3, 2, 1)])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_ramp_of_the_learning_rate_follows_the_formula_at_every_step_also_where_the_run_ends_on_it(base, n, warmup, steps, schedule):
    initial = base * n
    formula = [[initial / n * ((e + (b + 1) / steps) * (n - 1) / warmup + 1) for b in range(steps)] for e in range(warmup)]
    for num_epochs in (1, warmup, warmup + 2):
        scheduled = scheduled_rates(base, n, warmup, schedule, num_epochs, steps)[:warmup]
        np.testing.assert_allclose(scheduled, formula[:num_epochs], rtol=1e-12)


@pytest.mark.parametrize(
    ("factor", "warmup", "begin", "rate"), [(8, 3, 3, 0.08), (8, 0, 0, 0.08), (1, 0, 0, 0.01), (1, 0.5, 0, 0.01), (1, 3, 0, 0.01)]
)
def test_after_the_ramp_and_with_factor_1_the_learning_rate_is_constant(factor, warmup, begin, rate):
    np.testing.assert_allclose(scheduled_rates(0.01, factor, warmup, "constant", 6, STEPS)[begin:], rate, rtol=1e-15)


@pytest.mark.parametrize(("warmup", "ramp_steps"), [(0.5, 7), (1.5, 21), (0.25, 4), (0.01, 1)])
def test_a_fractional_warm_up_rises_to_the_scaled_rate_and_not_beyond(warmup, ramp_steps):
    scheduled = scheduled_rates(0.01, 8, warmup, "constant", 3, STEPS).ravel()
    assert (np.diff(scheduled[:ramp_steps]) > 0).all()
    assert scheduled[0] > 0.01
    np.testing.assert_allclose(scheduled[ramp_steps - 1 :], 0.08, rtol=1e-12)


@pytest.mark.parametrize("warmup", [0, 2, 2.5])
def test_the_cosine_starts_at_the_peak_and_falls_to_0(warmup):
    scheduled = scheduled_rates(0.01, 8, warmup, "cosine", 10, STEPS).ravel()
    falling = scheduled[round(warmup * STEPS) :]
    assert falling[0] == pytest.approx(0.08, rel=1e-12)
    assert (np.diff(falling) < 0).all()
    assert falling[len(falling) // 2] == pytest.approx(0.04, rel=0.02)
    assert 0 <= falling[-1] < 0.08 * 1e-3
    assert scheduled.max() <= 0.08 * (1 + 1e-12)


@pytest.mark.parametrize(
    ("scaling", "accumulate", "degree", "expected"),
    [
        ("weak", 1, 1, (16, 16, 16, 1)), ("weak", 1, 4, (64, 16, 16, 4)), ("strong", 1, 4, (16, 4, 4, 4)),
        ("weak", 3, 4, (192, 48, 16, 4)), ("strong", 3, 4, (48, 12, 4, 4)),
    ],
)  # fmt: skip
def test_the_batch_of_a_step_is_divided_over_shards_and_micro_batches(scaling, accumulate, degree, expected):
    settings = Settings(batch_size=16, scaling=scaling, accumulate=accumulate)
    assert workloads.batch_plan(settings, degree) == expected
    # It is that of the workload where none is given.
    assert workloads.batch_plan(dataclasses.replace(settings, batch_size=None), degree) == expected
