"""Energy: which counters are added up and how, and null if there is nothing to read, with artificial powercap trees."""

import math
import os
import threading
import time

import numpy as np
import pynvml
import pytest

from common.process import energy
from common.process.ranks import Ranks
from tests.support import nvml

LIMIT = 1000


def powercap(root, zones):
    """A powercap tree at `root`; zones: {folder: (name, microjoules)}."""
    for folder, (name, microjoules) in zones.items():
        (root / folder).mkdir(parents=True)
        for file, text in (("name", name), ("energy_uj", microjoules), ("max_energy_range_uj", LIMIT)):
            (root / folder / file).write_text(f"{text}\n")
    return root


ZONES = {
    "intel-rapl:0": ("package-0", 1),
    "intel-rapl:0:0": ("core", 2),
    "intel-rapl:0:1": ("uncore", 4),
    "intel-rapl:0:2": ("dram", 8),
    "intel-rapl:1": ("package-1-die-0", 16),
    "intel-rapl:1:0": ("dram", 32),
    "intel-rapl:2": ("psys", 64),
    "intel-rapl-mmio:0": ("package-0", 128),
}


@pytest.mark.parametrize(
    ("folders", "counted"),
    [
        (ZONES, ["intel-rapl:0", "intel-rapl:0:2", "intel-rapl:1", "intel-rapl:1:0"]),
        (["intel-rapl:2"], []),
        ([], []),
    ],
)
def test_packages_and_memory_are_counted_once_and_not_their_parts(folders, counted, tmp_path):
    (tmp_path / "intel-rapl").mkdir()
    root = powercap(tmp_path, {folder: ZONES[folder] for folder in folders})
    assert energy.domains(root) == {root / folder / "energy_uj": LIMIT for folder in counted}


def test_packages_are_read_from_the_start_to_the_end_also_where_they_wrap_around(tmp_path):
    powercap(tmp_path, ZONES)
    (tmp_path / "intel-rapl:1:0/max_energy_range_uj").write_text("2000\n")
    joules = energy.count_packages(tmp_path)
    assert joules() == 0
    for folder, microjoules in (("intel-rapl:0", 501), ("intel-rapl:1:0", 12), ("intel-rapl:2", 900)):
        (tmp_path / folder / "energy_uj").write_text(f"{microjoules}\n")
    assert joules() == pytest.approx((500 + 1980) / 1e6)
    for text in ("", "502\n"):
        (tmp_path / "intel-rapl:0/energy_uj").write_text(text)
        assert math.isnan(joules())


def test_counters_that_wrap_around_several_times_are_counted(tmp_path):
    counter = powercap(tmp_path, {"intel-rapl:0": ("package-0", 900)}) / "intel-rapl:0/energy_uj"
    joules = energy.count_packages(tmp_path, interval_seconds=0.01)
    for microjoules in (100, 600, 950):
        # Replaced in one step: a reader would find a file that is being written empty.
        counter.with_name("new").write_text(f"{microjoules}\n")
        os.replace(counter.with_name("new"), counter)
        time.sleep(0.3)
    assert joules() == pytest.approx((200 + 500 + 350) / 1e6)


def test_nothing_follows_the_counters_when_nobody_can_ask(tmp_path):
    before = set(threading.enumerate())
    joules = energy.count_packages(powercap(tmp_path, ZONES), interval_seconds=0.01)
    (follower,) = set(threading.enumerate()) - before
    del joules
    follower.join(timeout=10)
    assert not follower.is_alive()


@pytest.mark.parametrize(("file", "text"), [("energy_uj", None), ("energy_uj", ""), ("max_energy_range_uj", None), ("name", None)])
def test_a_file_that_cannot_be_read_or_a_machine_without_counters_means_not_measured(file, text, tmp_path):
    path = powercap(tmp_path, ZONES) / "intel-rapl:1" / file
    path.unlink()
    if text is not None:
        path.write_text(text)
    assert math.isnan(energy.count_packages(tmp_path)())
    assert math.isnan(energy.count_packages(tmp_path / "nowhere")())


@pytest.mark.parametrize(("pids", "joules"), [([7], 2.0), ([7, 8], 6.5), ([1], 2.5), ([9], math.nan), ([], math.nan)])
def test_gpus_count_where_a_process_of_ours_computes(pids, joules, monkeypatch):
    driver = nvml.Driver()
    nvml.install(monkeypatch, driver)
    count = energy.count_gpus(pids)
    driver.millijoules = {"first": 1500, "second": 7000, "third": 24500}
    assert count() == pytest.approx(joules, nan_ok=True)


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetTotalEnergyConsumption"])
def test_a_driver_without_energy_means_not_measured(function, monkeypatch):
    nvml.install(monkeypatch, nvml.Driver())
    monkeypatch.setattr(pynvml, function, nvml.refuse)
    assert math.isnan(energy.count_gpus([7])())


def test_the_first_rank_of_a_node_reads_for_the_others():
    assert energy.begin(Ranks(1, 2, 1, 2), [1, 2])().tolist() == [0.0, 0.0]


class Nodes:
    """Stands for the trainer of one rank: the sum with what the other ranks read."""

    def __init__(self, *of_other_ranks):
        self.others = of_other_ranks

    def sum(self, values):
        return values + sum(map(np.array, self.others), np.zeros(2))


NAN = math.nan


@pytest.mark.parametrize(
    ("of_rank_0", "of_other_ranks", "joules", "source"),
    [
        ((5.0, NAN), [], 5.0, "RAPL"),
        ((NAN, 7.0), [], 7.0, "NVML"),
        ((5.0, 7.0), [(0.0, 0.0), (1.0, 2.0)], 15.0, "RAPL and NVML"),
        ((5.0, 7.0), [(NAN, 2.0)], 9.0, "NVML"),
        ((5.0, NAN), [(NAN, NAN)], None, None),
        ((0.0, 0.0), [(3.0, NAN)], 3.0, "RAPL"),
        ((0.0, NAN), [], None, None),
    ],
)
def test_a_source_counts_where_every_node_has_it(of_rank_0, of_other_ranks, joules, source):
    assert energy.total(Nodes(*of_other_ranks), np.array(of_rank_0)) == (joules, source)
