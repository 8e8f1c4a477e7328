"""The limit of a training by products and by copies, from records whose products and copies are given."""

import pytest

from common.config import Settings
from common.cost import intensity
from tests.support.answers import section
from tests.support.made_records import noisy


def ran(rate, backend="ddp", peak=100e9, copies=(1e9, 3e9), **changes):
    return noisy((1.0, 1.0), copies, backend=backend, flops_per_second_per_rank=rate, peak_flops_per_second=peak, **changes)


def sentences(*made_records):
    return [sentence for sentence in section(made_records, "cost").sentences if "FLOPs a byte" in sentence]


def test_the_intensity_of_the_cnn_is_that_of_its_description():
    # 3 * 24,010,240 FLOPs, and 345,128 bytes kept, for each sample; 1,199,882 parameters, and a velocity of each.
    num_bytes = 2 * 16 * 345_128 + (4 + 2 + 2) * 4 * 1_199_882
    assert intensity.flops_per_byte(Settings("cnn"), 16) == pytest.approx(16 * 72e6 / num_bytes, rel=0.01)
    # In a larger batch each byte of the parameters serves more samples, and Adam keeps one number more for each.
    assert intensity.flops_per_byte(Settings("cnn"), 64) > 2 * intensity.flops_per_byte(Settings("cnn"), 16)
    assert intensity.flops_per_byte(Settings("cnn", optimizer="adam"), 16) < intensity.flops_per_byte(Settings("cnn"), 16)


def test_the_nearest_run_is_judged_by_the_lower_of_both_limits():
    allowed = "GFLOP/s, 23 FLOPs a byte at a copy's 2 GB/s 47"
    # Of what products allow, 28 GFLOP/s would be 28 %.
    slow_memory = ran(28e9), ran(14e9, "horovod_tf")
    assert sentences(*slow_memory) == [f"cnn, weak scaling, 1 rank: products allow 100 {allowed}; ddp reaches 60 % of the lower limit."]
    slow_products = ran(14e9, peak=40e9), ran(28e9, "horovod_tf", peak=40e9)
    assert sentences(*slow_products) == [
        f"cnn, weak scaling, 1 rank: products allow 40 {allowed}; horovod_tf reaches 70 % of the lower limit."
    ]


@pytest.mark.parametrize("changes", [{"rate": None}, {"peak": None}, {"copies": (None, None)}, {"workload": "later"}])
def test_without_a_part_of_the_limit_there_is_no_sentence(changes):
    rate = changes.get("rate", 28e9)
    record = ran(rate, **{name: value for name, value in changes.items() if name not in {"rate", "workload"}})
    assert sentences(record | {name: value for name, value in changes.items() if name == "workload"}) == []


def test_there_is_none_on_a_gpu_whose_memory_no_run_copies():
    record = ran(28e9)
    gpu = dict.fromkeys(("model", "pci_bus_id", "driver", "cuda", "cudnn", "nccl"), "known")
    assert sentences(record | {"environment": record["environment"] | {"gpu": gpu}}) == []
