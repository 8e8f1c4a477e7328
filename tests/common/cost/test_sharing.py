"""What theory expects of each strategy of sharing, at several numbers of ranks."""

import pytest

from common import backends
from common.config import Settings
from common.cost import sharing, volumes
from common.cost.sharing import bus_bytes
from common.workloads import gradient_bytes
from tests.support.made_records import made, step_breakdown, typed

SGD, ADAM = (Settings(optimizer=optimizer) for optimizer in ("sgd", "adam"))
# Bytes of the CNN's parameters in float32.
P = 4_799_528


@pytest.mark.parametrize(
    ("name", "num_ranks", "sent"),
    [
        ("single", 1, 0),
        ("ddp", 1, 0),
        ("ddp", 2, 1),
        ("ddp@mpi", 4, 3 / 2),
        ("ddp@bf16", 4, 3 / 4),
        ("gradient_averaging", 8, 7 / 4),
        *[(name, 4, 3 / 2) for name in ("horovod_torch", "zero_redundancy", "deepspeed_zero", "deepspeed_zero@0", "deepspeed_zero@2")],
        ("deepspeed_zero@3", 4, 9 / 4),
        ("fsdp", 2, 3 / 2),
        ("fsdp", 4, 9 / 4),
        ("fsdp@keep", 4, 3 / 2),
        ("fsdp@bf16", 4, 3 / 2 + 3 / 8),
        ("weight_averaging", 4, 3 / 16),
        ("weight_averaging@1", 4, 3 / 2),
        ("a_file_of_ones_own", 4, None),
    ],
)
def test_bytes_that_a_rank_sends(name, num_ranks, sent):
    assert sharing.sent_bytes(name, num_ranks, SGD) == (None if sent is None else pytest.approx(sent * P))


@pytest.mark.parametrize(
    ("name", "num_ranks", "settings", "ratio"),
    [
        ("ddp", 4, SGD, 1 + 1 + 1),
        ("ddp", 4, ADAM, 1 + 1 + 2),
        ("ddp", 4, Settings(optimizer="sgd", momentum=0.0), 1 + 1 + 0),
        ("weight_averaging", 4, ADAM, 1 + 1 + 2),
        ("zero_redundancy", 4, ADAM, 1 + 1 + 2 / 4),
        ("deepspeed_zero@0", 4, ADAM, 1 + 1 + 2),
        # With master parameters.
        ("deepspeed_zero", 4, ADAM, 1 + 1 + 3 / 4),
        ("deepspeed_zero@2", 4, SGD, 1 + 1 / 4 + 2 / 4),
        ("deepspeed_zero@3", 4, SGD, 1 / 4 + 1 / 4 + 2 / 4),
        ("fsdp", 4, SGD, 3 / 4),
        ("fsdp", 1, SGD, 3),
        ("fsdp@keep", 4, SGD, 1 + 1 / 4 + 1 / 4),
        ("a_file_of_ones_own", 4, SGD, None),
    ],
)
def test_bytes_that_a_rank_holds(name, num_ranks, settings, ratio):
    assert sharing.state_bytes(name, num_ranks, settings) == (None if ratio is None else pytest.approx(ratio * P))


def test_master_parameters_and_their_optimizer_state_are_float32_in_a_float64_run():
    settings = Settings(optimizer="adam", precision="fp64")
    assert gradient_bytes(settings) == 2 * P
    assert sharing.state_bytes("ddp", 2, settings) == 8 * P
    assert sharing.state_bytes("deepspeed_zero", 2, settings) == 2 * P + 2 * P + 3 * P / 2


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_in_mixed_precision_the_state_and_the_exchange_are_those_of_float32(precision):
    settings = Settings(optimizer="adam", precision=precision)
    for name in ("ddp", "ddp@bf16", "deepspeed_zero@2", "fsdp", "fsdp@bf16"):
        assert sharing.sent_bytes(name, 4, settings) == sharing.sent_bytes(name, 4, ADAM)
        assert sharing.state_bytes(name, 4, settings) == sharing.state_bytes(name, 4, ADAM)


def test_every_strategy_that_is_declared_has_its_theory():
    for name, declaration in backends.declared().items():
        strategies = declaration.sharing if isinstance(declaration.sharing, dict) else {"": declaration.sharing}
        variants = {f"{name}@{variant}" for variant in strategies if variant}
        assert variants <= set(backends.variants_of(name))
        assert set(strategies.values()) <= {None, *sharing.STRATEGIES}


# The table at the end of nccl-tests' doc/PERFORMANCE.md, at 4 ranks; all-to-all and send and receive as in alltoall.cu and sendrecv.cu.
FACTORS = {
    "all_reduce": 1.5, "reduce_scatter": 0.75, "all_gather": 0.75, "broadcast": 1.0, "all_to_all": 0.75, "send_recv": 1.0, "barrier": 0.0,
}  # fmt: skip


def test_bus_factors_are_those_of_nccl_tests():
    # A rank contributes a quarter of the size of an all-gather at 4 ranks.
    sent = {name: bus_bytes(name, 2400.0 / (4 if name == "all_gather" else 1), 4) for name in FACTORS}
    assert sent == {name: 2400.0 * factor for name, factor in FACTORS.items()}


def test_the_bytes_that_a_run_sends_have_the_factor_of_its_ranks():
    operations = {name: {"num_calls": 1.0, "num_bytes": 100.0} for name in ("all_reduce", "all_gather")}
    (record,) = typed([made(num_ranks=4, step_breakdown=step_breakdown(num_ranks=4) | {"operations": operations})])
    assert volumes.sent_by_collective(record) == {"all_reduce": 150.0, "all_gather": 300.0}
    assert volumes.sent_bytes(record) == 450.0
