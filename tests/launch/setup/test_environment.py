"""environment.yml is the only list of pins, and the installed packages match it."""

import re
import sys
from importlib.metadata import version
from importlib.util import cache_from_source, find_spec
from pathlib import Path

import pytest
import yaml

from tests.support.running import ROOT

LISTED = yaml.safe_load((ROOT / "environment.yml").read_text())
PINS = next(entry["pip"] for entry in LISTED["dependencies"] if isinstance(entry, dict))


@pytest.mark.parametrize("pin", PINS)
def test_a_pin_is_exact_and_installed(pin):
    name, exact = re.fullmatch(r"([A-Za-z0-9_.-]+)==([\w.]+)", pin).groups()
    if name == "tensorflow-cpu" and (ROOT / ".venv/pins.txt").read_text().count("tensorflow=="):
        name = "tensorflow"
    assert version(name).split("+")[0] == exact


def test_pytorch_is_compiled_for_ranks_that_write_no_bytecode():
    # Most of these modules no rank imports.
    modules = [str(path) for path in Path(find_spec("torch").origin).with_name("utils").rglob("*.py")]
    assert len(modules) > 100
    assert [module for module in modules if not Path(cache_from_source(module)).exists()] == []


def test_nothing_is_pinned_twice():
    names = [pin.split("==")[0] for pin in PINS]
    assert sorted(set(names)) == sorted(names)
    assert not list(ROOT.glob("requirements*.txt"))
    assert "dependencies =" not in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("name", ["horovod", "tf-keras"])
def test_what_pip_cannot_install_by_a_pin_is_of_its_version(name):
    assert version(name) == LISTED["variables"][f"TANDEM_{name.upper().replace('-', '_')}_VERSION"]


def test_the_pinned_python_is_what_the_set_up_prefers_and_this_one_is_among_those_that_it_takes():
    versions = re.search(r"^versions=\((.*)\)$", (ROOT / "launch/setup.sh").read_text(), re.MULTILINE)[1].split()
    assert f"python={versions[0]}" in LISTED["dependencies"]
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in versions


def test_libraries_beside_those_of_pytorch_are_pinned_and_none_is_installed_over_one_of_them():
    names = {re.fullmatch(r"(nvidia-[a-z-]+)-cu12==[\d.]+", pin)[1] for pin in LISTED["variables"]["TANDEM_TENSORFLOW_CUDA"].split()}
    # The wheels of these for CUDA 12 and 13 have files of the same names in the same folders.
    assert names.isdisjoint({"nvidia-cudnn", "nvidia-nccl", "nvidia-nvshmem", "nvidia-cusparselt"})
