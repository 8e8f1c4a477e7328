"""The forecast of memory by hand, in a known example, and against the libraries' own estimates."""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import schedules
from torch.distributed.pipelining.schedules import F
from torch.testing._internal.distributed.fake_pg import FakeStore

from common.cost import communication_buffers, memory_forecast
from common.cost.memory_forecast import Training
from common.model import pipelining
from common.model.families import Decoder

GPT = Training(Decoder(64, 4, 4, 64), batch_size=8, microbatches=8)
# Bytes of the parameters in float32.
P = 4 * (2 * 256 * 64 + 64 + 4 * (4 * 64**2 + 3 * 64 * 192 + 2 * 64))
TERA = 1e12


@pytest.mark.parametrize(
    ("name", "num_ranks", "parameters", "gradients", "optimizer_state"),
    [
        ("single", 1, 1, 1, 2),
        ("deepspeed_zero@2", 8, 1, 1 / 8, 3 / 8),
        # Gradients in a buffer, and again as those of the masters.
        ("deepspeed_zero@3", 8, 1 / 8, 2 / 8, 3 / 8),
        ("fsdp@keep", 8, 1 / 8, 1 / 8, 2 / 8),
        ("fsdp@hsdp", 8, 1 / 4, 1 / 4, 2 / 4),
    ],
)
def test_what_a_rank_holds(name, num_ranks, parameters, gradients, optimizer_state):
    forecast = memory_forecast.of(name, GPT, num_ranks)
    assert forecast[:3] == pytest.approx((parameters * P, gradients * P, optimizer_state * P))


def test_a_node_has_a_replica():
    forecast = memory_forecast.of("fsdp@hsdp", GPT._replace(ranks_per_node=2), 8)
    assert forecast[:3] == pytest.approx((P / 2, P / 2, 2 * P / 2))


@pytest.mark.parametrize(
    ("precision", "optimizer", "bytes_per_parameter"),
    [
        ("fp32", "adam", (4, 4, 8)),
        ("fp32", "sgd", (4, 4, 4)),
        ("fp64", "adam", (8, 8, 16)),
        ("bf16", "adam", (4, 4, 8)),
        ("bf16_masters", "adam", (2, 2, 12)),
        ("bf16_pure", "adam", (2, 2, 4)),
    ],
)
def test_bytes_of_a_parameter_by_precision(precision, optimizer, bytes_per_parameter):
    forecast = memory_forecast.of("single", GPT._replace(precision=precision, optimizer=optimizer), 1)
    assert [size / (P / 4) for size in forecast[:3]] == pytest.approx(bytes_per_parameter)


def test_what_is_offloaded_is_in_main_memory():
    plain, states, whole = (memory_forecast.of(f"deepspeed_zero@3{offload}", GPT, 8) for offload in ("", "+offload", "+offload_parameters"))
    assert (states.parameters, states.gradients, states.optimizer_state) == (plain.parameters, 0, 0)
    assert states.main_memory == plain.gradients + plain.optimizer_state
    assert (whole.parameters, whole.main_memory) == (0, plain.parameters + states.main_memory)
    assert plain.peak > states.peak > whole.peak


def test_what_the_libraries_keep_to_exchange():
    single = memory_forecast.of("single", GPT, 1)
    block, rest = (P - 4 * (2 * 256 * 64 + 64)) / 4, 4 * (2 * 256 * 64 + 64)
    # FSDP, while a block is computed: it, the one before it, the gradients of the one after it, and the rest of the model.
    buffers = {"ddp": P, "horovod_torch": 128 * 2**20, "fsdp": 3 * block + rest, "deepspeed_zero@0": P, "deepspeed_zero@2": 2 * P}
    # Stage 3 keeps whole parameters too.
    buffers |= {"deepspeed_zero@3": 3 * P, "deepspeed_zero@3+offload": 3 * P}
    assert {name: memory_forecast.of(name, GPT, 8).buffers for name in buffers} == buffers
    # However small the model is.
    assert memory_forecast.of("deepspeed_zero@2+offload", GPT, 8).buffers == 4 * communication_buffers.REDUCE_BUCKET
    assert single.buffers == 0
    assert memory_forecast.of("ddp", GPT, 8).peak - single.peak == P


def test_a_trillion_parameters_as_in_the_course():
    """Argonne's AI for Science training series, 01-AI-at-Scale (github.com/argonne-lcf/ai-science-training-series).

    In 16 bits it lists 2 TB of parameters, 2 of gradients, 4 of Adam's state and 0.8 of activations, one tensor for each layer: 8.8 TB.
    Its total is 10.8 TB: 2 bytes per parameter more, as many as DDP's buckets have.
    """
    model = Decoder(12_288, 96, 120, 2048, num_tokens=50_257)
    training = Training(model, batch_size=128, precision="bf16_pure", recompute=True, num_parameters=1e12)
    single, ddp = memory_forecast.of("single", training, 1), memory_forecast.of("ddp", training, 8)
    assert single[:3] == pytest.approx((2 * TERA, 2 * TERA, 4 * TERA))
    inputs = 128 * 120 * 2048 * 12_288 * 2
    assert inputs / TERA == pytest.approx(0.77, abs=0.01)
    # Beside the inputs of layers: one layer that is computed again, and the head.
    one_layer = memory_forecast.of("single", training._replace(recompute=False), 1).activations / 120
    assert inputs < single.activations < inputs + 1.6 * one_layer
    assert sum(single[:3]) + inputs == pytest.approx(8.8 * TERA, rel=0.01)
    assert sum(ddp[:3]) + ddp.buffers + inputs == pytest.approx(10.8 * TERA, rel=0.01)


@pytest.mark.matrix
@pytest.mark.parametrize("num_ranks", [1, 8, 64])
def test_deepspeeds_own_estimates(num_ranks):
    """Of 16 bits with Adam, without activations; stage 3's counts the largest layer, its parameters and gradients, as gathered.

    That of stage 2 lists 18 bytes per parameter: 16-bit gradients, and in float32 gradients, masters and two moments; the parameters come
    on top. That of stage 3 has 18 with the parameters, and so leaves out the 16-bit gradients, which stage 3 keeps too (0.19.8).
    """
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

    training = GPT._replace(precision="bf16_masters")
    number, largest = P // 4, 256 * 64

    def held(name):
        forecast = memory_forecast.of(name, training, num_ranks)
        return sum(forecast[:3]), forecast.main_memory

    factor = {"additional_buffer_factor": 1}
    two, three = (number, num_ranks), (number, largest, num_ranks)
    assert held("deepspeed_zero@2")[0] == pytest.approx(estimate_zero2_model_states_mem_needs(*two, cpu_offload=False)[1], abs=2)
    assert held("deepspeed_zero@2+offload")[0] == pytest.approx(estimate_zero2_model_states_mem_needs(*two)[1], abs=2)
    for name, offload in (("", (False, False)), ("+offload", (True, False)), ("+offload_parameters", (True, True))):
        of_node, of_rank, _ = estimate_zero3_model_states_mem_needs(*three, 1, *offload, **factor)
        ours, in_main_memory = held(f"deepspeed_zero@3{name}")
        left_out = 2 * number / num_ranks
        assert ours + 4 * largest - (0 if name else left_out) == pytest.approx(of_rank, abs=2)
        if name:
            assert (in_main_memory - left_out) * num_ranks == pytest.approx(of_node, abs=2 * num_ranks)


@pytest.mark.parametrize("num_ranks", [2, 3, 8])
def test_parameters_are_dealt_as_zero_redundancy_optimizer_deals_them(num_ranks):
    sizes = [50, 7, 7, 120, 33, 8, 8, 60, 1]
    dist.init_process_group("fake", rank=0, world_size=num_ranks, store=FakeStore())
    try:
        dealt = ZeroRedundancyOptimizer([torch.nn.Parameter(torch.zeros(size)) for size in sizes], torch.optim.SGD, lr=0.1)
        largest = max(sum(part.numel() for group in hand for part in group["params"]) for hand in dealt._partition_parameters())
    finally:
        dist.destroy_process_group()
    assert memory_forecast.largest_hand(sizes, num_ranks) * sum(sizes) == largest


def under_way(schedule, rank, num_ranks, num):
    """The most chunks whose backward pass is not done in PyTorch's order of a rank's passes."""
    stages = {"_n_microbatches": num, "pp_group_size": num_ranks, "n_local_stages": 2, "num_stages": 2 * num_ranks}
    pipeline = SimpleNamespace(**stages, microbatches_per_round=num // max(1, num // num_ranks))
    kind = {"interleaved": schedules.ScheduleInterleaved1F1B, "zero_bubble": schedules.ScheduleZBVZeroBubble}[schedule]
    open_passes, most = 0, 0
    for action in kind._calculate_single_rank_operations(pipeline, rank):
        if action is not None and action.microbatch_index < num:
            ends = action.computation_type in (schedules.FULL_BACKWARD, schedules.BACKWARD_WEIGHT)
            open_passes += (action.computation_type == F) - ends
            most = max(most, open_passes)
    return most


@pytest.mark.parametrize("schedule", ["interleaved", "zero_bubble"])
@pytest.mark.parametrize(("num_ranks", "num"), [(2, 2), (2, 4), (4, 4), (4, 8), (4, 16)])
def test_micro_batches_under_way_are_those_of_pytorchs_schedules(schedule, num_ranks, num):
    for rank in range(num_ranks):
        assert pipelining.num_under_way(schedule, rank, num_ranks, num) == under_way(schedule, rank, num_ranks, num)


def test_the_first_rank_of_1f1b_has_most_under_way_and_gpipes_ranks_all():
    assert [pipelining.num_under_way("1f1b", rank, 4, 8) for rank in range(4)] == [4, 3, 2, 1]
    assert [pipelining.num_under_way("gpipe", rank, 4, 8) for rank in range(4)] == [8] * 4
    assert pipelining.num_under_way("1f1b", 0, 4, 2) == 2
    forecasts = memory_forecast.by_rank("pipeline", GPT, 4)
    activations = [forecast.activations for forecast in forecasts]
    assert activations[0] > activations[1] > activations[2]
    assert max(activations) < memory_forecast.of("pipeline@gpipe", GPT, 4).activations
    assert max(forecast.peak for forecast in forecasts) == memory_forecast.of("pipeline", GPT, 4).peak
    assert sum(forecast.parameters for forecast in memory_forecast.by_rank("pipeline@zero_bubble", GPT, 4)) == P


def test_a_given_number_of_parameters_is_in_place_of_that_of_the_sizes():
    twice = memory_forecast.of("fsdp", GPT._replace(num_parameters=P / 2), 8)
    assert twice.parameters == pytest.approx(2 * P / 8)
    assert twice.activations == memory_forecast.of("fsdp", GPT, 8).activations
