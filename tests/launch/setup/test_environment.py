"""environment.yml is the only list of pins, and the installed packages match it."""

import re
import sys
from importlib.metadata import version

import pytest
import yaml

from launch.setup import check_cuda
from tests.support.running import BIN, ROOT, completed

LISTED = yaml.safe_load((ROOT / "environment.yml").read_text())
PINS = next(entry["pip"] for entry in LISTED["dependencies"] if isinstance(entry, dict))


@pytest.mark.parametrize("pin", PINS)
def test_a_pin_is_exact_and_installed(pin):
    name, exact = re.fullmatch(r"([A-Za-z0-9_.-]+)==([\w.]+)", pin).groups()
    if name == "tensorflow-cpu" and (ROOT / ".venv/pins.txt").read_text().count("tensorflow=="):
        name = "tensorflow"
    assert version(name).split("+")[0] == exact


def test_nothing_is_pinned_twice():
    names = [pin.split("==")[0] for pin in PINS]
    assert sorted(set(names)) == sorted(names)
    assert not list(ROOT.glob("requirements*.txt"))
    assert "dependencies =" not in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("name", ["horovod", "tf-keras"])
def test_what_pip_cannot_install_by_a_pin_is_of_its_version(name):
    assert version(name) == LISTED["variables"][f"TANDEM_{name.upper().replace('-', '_')}_VERSION"]


def test_the_pinned_python_is_what_the_set_up_prefers_and_this_one_is_among_those_that_it_takes():
    versions = re.search(r"^versions=\((.*)\)$", (ROOT / "launch/setup/find_python.sh").read_text(), re.MULTILINE)[1].split()
    assert f"python={versions[0]}" in LISTED["dependencies"]
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in versions


def test_libraries_beside_those_of_pytorch_are_pinned_and_none_is_installed_over_one_of_them():
    names = {re.fullmatch(r"(nvidia-[a-z-]+)-cu12==[\d.]+", pin)[1] for pin in LISTED["variables"]["TANDEM_TENSORFLOW_CUDA"].split()}
    # The wheels of these for CUDA 12 and 13 have files of the same names in the same folders.
    assert names.isdisjoint({"nvidia-cudnn", "nvidia-nccl", "nvidia-nvshmem", "nvidia-cusparselt"})


@pytest.mark.parametrize(
    ("library", "symbol", "is_reported"),
    [
        ("/v/horovod/tensorflow/mpi_lib.so", "__cudaLaunchKernel' [libcudart.so.13]", True),
        ("/v/horovod/tensorflow/mpi_lib.so", "cudaMalloc'", True),
        ("/v/horovod/tensorflow/mpi_lib.so", "MPI_Init'", False),
        ("/v/torch/lib/libc10_cuda.so", "cudaMalloc'", False),
    ],
)
def test_the_loader_is_asked_where_a_library_of_horovod_has_the_cuda_runtime_from(library, symbol, is_reported):
    line = f"     17:\tbinding file {library} [0] to /v/tensorflow/libtensorflow_framework.so.2 [0]: normal symbol `{symbol}"
    providers = [match[1] for match in check_cuda.CUDA_BINDING.finditer(line)]
    assert providers == (["/v/tensorflow/libtensorflow_framework.so.2"] if is_reported else [])


@pytest.mark.matrix
def test_what_the_set_up_says_of_the_build_for_gpus_is_in_one_line_each():
    for_gpus = "TANDEM_DEVICE=cuda" in (ROOT / ".venv/tandem-choices").read_text()
    done = completed(BIN / "python", "-m", "launch.setup.check_cuda")
    assert done.returncode == (0 if for_gpus else 1)
    of_pytorch, of_tensorflow, libraries = done.stdout.splitlines()
    assert f"Horovod for PyTorch: cuda_built() {for_gpus}, nccl_built() " in of_pytorch
    assert f"Horovod for TensorFlow: cuda_built() {for_gpus}, nccl_built() " in of_tensorflow
    # TensorFlow's library offers a runtime of another version to the whole process.
    assert of_pytorch.endswith(f"CUDA runtime: {'libcudart.so.13' if for_gpus else 'none'}")
    assert of_tensorflow.endswith(f"CUDA runtime: {'its own' if for_gpus else 'none'}")
    assert re.search(r"TensorFlow: \d of 9 CUDA libraries load", libraries)
