"""The name of a processor, from what its record has."""

import pytest

from common.record.parts import Environment, Processor
from launch.report import environments
from tests.support.answers import answered
from tests.support.made_records import ENVIRONMENT, made, on, typed

AMD, INTEL = "AuthenticAMD", "GenuineIntel"


@pytest.mark.parametrize(
    ("cpu", "processor", "name"),
    [
        ("AMD EPYC", None, "AMD EPYC"),
        ("AMD EPYC", Processor(AMD, 26, 2, 1, hypervisor="KVM"), "AMD EPYC, family 26 model 2, KVM"),
        ("AMD EPYC 7713", Processor(AMD, 25, 1), "AMD EPYC 7713, family 25 model 1"),
        ("Xeon 8480", Processor(INTEL, 6, 143), "Xeon 8480, family 6 model 143"),
        # One of which Linux shows nothing.
        ("aarch64", Processor(), "aarch64"),
    ],
)
def test_a_processor_has_a_name_with_its_family_and_its_hypervisor(cpu, processor, name):
    assert environments.processor_of(Environment(**ENVIRONMENT | {"cpu": cpu, "processor": processor})) == name


def test_a_report_names_its_machine_with_cores_and_the_fastest_product():
    hardware = {"vendor": AMD, "family": 26, "model": 2, "hypervisor": "KVM"}
    notes = answered(on("here", [made(peak_flops_per_second=246e9)], cpu="AMD EPYC", processor=hardware, num_cores=2)).notes
    named = "Machine: AMD EPYC, family 26 model 2, KVM, 2 cores. The fastest matrix product of a rank reaches 246 GFLOP/s (PyTorch)."
    assert notes[0] == named
    assert not [note for note in answered([made()]).notes if note.startswith("Machine")]


def test_equal_names_with_another_cache_or_governor_are_unequal_machines():
    def described(l3_shared_by, governor):
        hardware = {"vendor": AMD, "family": 26, "model": 2, "stepping": 1, "l3_bytes": 2**25, "l3_shared_by": l3_shared_by}
        return typed(on("here", [made()], processor=hardware | {"governor": governor}))

    differences = environments.changes(described("0-1", "performance"), described("0-7", "powersave"))
    assert differences == "L3 32 MiB, shared by 0-1 to 32 MiB, shared by 0-7, governor performance to powersave"
