"""What records ran on: the name of a processor, and the limit of a machine, from made records and committed ones where MKL is slow."""

import pytest

from common.record.parts import Environment, Processor
from launch.report import environments
from tests.support.answers import section
from tests.support.made_records import ENVIRONMENT, made, typed

AMD, INTEL = "AuthenticAMD", "GenuineIntel"


@pytest.mark.parametrize(
    ("cpu", "processor", "name"),
    [
        ("AMD EPYC", None, "AMD EPYC"),
        ("AMD EPYC", Processor(AMD, 26, 2, hypervisor="KVM"), "AMD EPYC, family 26 model 2, KVM"),
        ("AMD EPYC 7713", Processor(AMD, 25, 1), "AMD EPYC 7713, family 25 model 1"),
        ("Xeon 8480", Processor(INTEL, 6, 143), "Xeon 8480, family 6 model 143"),
        # One of which Linux shows nothing.
        ("aarch64", Processor(), "aarch64"),
    ],
)
def test_a_processor_has_a_name_with_its_family_and_its_hypervisor(cpu, processor, name):
    assert environments.processor_of(Environment(**ENVIRONMENT | {"cpu": cpu, "processor": processor})) == name


def test_the_fastest_product_is_named_with_its_library():
    (sentence,) = [text for text in section([made(peak_flops_per_second=246e9)], "cost").sentences if "product" in text]
    assert sentence == "The fastest matrix product of a rank reaches 246 GFLOP/s (PyTorch)."


ON_AMD = {"cpu": "AMD EPYC", "device": "cpu"}


def ran(backend="ddp", rate=2e9, peak=10e9, environment=None, **changes):
    run = made(backend=backend, flops_per_second_per_rank=rate, peak_flops_per_second=peak, **changes)
    return run | {"environment": run["environment"] | (ON_AMD if environment is None else environment)}


def sentences(*made_records):
    return [sentence for sentence in section(made_records, "cost").sentences if "multiplies" in sentence]


# A slow library of linear algebra, faked.
SLOW = {"peak_library": "oneDNN in PyTorch", "framework_product_share": 0.4}
REMEDY = "; --mkl-kernels fast doubles that."


@pytest.mark.parametrize(
    ("made_records", "expected"),
    [
        ([ran(**SLOW)], [f"PyTorch multiplies at 40 % of what this core can{REMEDY}"]),
        # The library may have another cause, which is not known.
        (
            [ran(environment={"cpu": "Intel Xeon"}, settings={"threads": 2}, **SLOW)],
            ["PyTorch multiplies at 40 % of what 2 cores can."],
        ),
        ([ran(peak_library="oneDNN in PyTorch", framework_product_share=0.8)], []),
        # Ranks that share a core reach less than one alone, which says nothing about their library.
        ([ran(), ran(framework_product_share=0.4, oversubscribed=True)], []),
        # The peak of older records is that of their framework.
        (
            [ran(peak=11e10), ran("horovod_tf", peak=24e10)],
            [f"PyTorch multiplies at 46 % of what this core can{REMEDY}"],
        ),
        ([ran(peak=11e10), ran("horovod_tf", peak=12e10)], []),
        ([ran(peak=None)], []),
    ],
)
def test_a_framework_far_below_the_limit_is_named_with_its_cause(made_records, expected):
    assert sentences(*made_records) == expected


def test_precisions_have_limits_of_their_own():
    made_records = [ran(**SLOW), ran(peak=2e9, settings={"precision": "bf16"})]
    assert [limit.flops_per_second for limit in environments.limits_of(typed(made_records)).values()] == [10e9, 2e9]
