"""Which backends fit, the largest model, and the fewest ranks."""

import pytest

from common.cost import memory_forecast
from common.cost.memory_forecast import Training
from common.model.families import Cnn, Decoder, EncoderDecoder
from launch.forecast.memory import fits

GB = 1e9
TRAINING = Training(Decoder(512, 8, 8, 256), 8, microbatches=8)


@pytest.mark.parametrize("name", ["single", "ddp", "fsdp", "tensor_parallel", "pipeline", "deepspeed_zero@3+offload"])
@pytest.mark.parametrize("recompute", [False, True])
def test_the_widest_model_fits_and_a_wider_one_does_not(name, recompute):
    num_ranks, limit = (1 if name == "single" else 8), 30 * GB
    training = TRAINING._replace(recompute=recompute)
    largest = fits.widest(name, training, num_ranks, limit)
    heads, step = largest.model.num_heads, 8 if name == "tensor_parallel" else 1
    assert (largest.model.head_width, largest.model.num_layers) == (64, 8)
    assert memory_forecast.of(name, largest, num_ranks).peak <= limit
    assert memory_forecast.of(name, fits.widened(training, heads + step), num_ranks).peak > limit


def test_the_fewest_ranks_are_the_first_power_of_two_that_fits():
    peaks = {num: memory_forecast.of("fsdp", TRAINING, num).peak for num in (1, 2, 4, 8)}
    assert peaks[1] > peaks[2] > peaks[4] > peaks[8]
    for num, fewer in ((2, 1), (4, 2), (8, 4)):
        assert fits.fewest_ranks("fsdp", TRAINING, peaks[num]) == num
        assert fits.fewest_ranks("fsdp", TRAINING, peaks[fewer] - 1) == num


def test_what_divides_nothing_has_no_fewest_ranks_where_it_does_not_fit():
    alone = memory_forecast.of("single", TRAINING, 1).peak
    fit = fits.fit("ddp", TRAINING, 8, alone)
    assert not fit.fits
    assert fit.fewest_ranks is None
    assert fits.fit("single", TRAINING, 1, alone)[1:3] == (True, alone)


def test_what_more_parameters_a_model_has_than_its_sizes_say_grows_with_it():
    num_parameters = memory_forecast.num_parameters(TRAINING)
    twice = TRAINING._replace(num_parameters=2 * num_parameters)
    assert memory_forecast.num_parameters(fits.widened(twice, 8)) == 2 * num_parameters
    wider = fits.widened(TRAINING, 16)
    assert memory_forecast.num_parameters(fits.widened(twice, 16)) == pytest.approx(2 * memory_forecast.num_parameters(wider))


def test_a_model_without_a_width_has_no_larger_one():
    assert fits.widest("single", Training(Cnn(), 8), 1, 1e12) is None
    assert fits.widest("single", Training(EncoderDecoder(), 8), 1, 1e10).model.hidden > 2048
