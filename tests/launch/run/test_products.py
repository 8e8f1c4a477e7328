"""The products of the libraries at hand: what they print, and that one which fails or hangs stops nothing."""

import json
import subprocess
from types import SimpleNamespace

import pytest

from common.config import Settings
from common.training import throughput
from launch.launchers.commands import Launcher
from launch.run import available, library_products, products
from launch.run.plan import Job

WITH_MKL = "Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 20240605, BLAS_INFO=mkl, X=1"
ONEDNN = "onednn_verbose,v1,info,oneDNN v3.7.3 (commit N/A)\nonednn_verbose,v1,info,cpu,isa:Intel AVX-512\n"


def measured(library=None, instruction_set=None):
    return {"flops_per_second": 1e9, "library": library, "instruction_set": instruction_set}


def printed(**by_name):
    return library_products.MARKER + json.dumps(by_name) + "\n"


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("", {}),
        (printed(TensorFlow=measured()), {"TensorFlow": measured()}),
        (ONEDNN + printed(TensorFlow=measured()), {"TensorFlow": measured("oneDNN 3.7.3", "Intel AVX-512")}),
        # MKL computes PyTorch's own product, beside that of oneDNN.
        (
            ONEDNN + printed(PyTorch=measured("MKL 2024.2"), oneDNN=measured()),
            {"PyTorch": measured("MKL 2024.2"), "oneDNN": measured("oneDNN 3.7.3", "Intel AVX-512")},
        ),
    ],
)
def test_onednn_is_the_library_behind_a_product_where_it_ran(output, expected):
    assert products.products_of(output) == expected


def test_a_library_that_fails_or_takes_too_long_is_left_out(monkeypatch, capsys, tmp_path):
    bound = []

    def run(command, **options):
        library = command[3]
        if library == "pytorch":
            raise subprocess.CalledProcessError(1, command)
        if library == "tensorflow":
            raise subprocess.TimeoutExpired(command, options["timeout"])
        assert (command[4:], options["env"]["OMP_NUM_THREADS"]) == (["fp32", "cpu", "2"], "2")
        return SimpleNamespace(stdout=printed(NumPy=measured("a BLAS")))

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(products, "subprocess", SimpleNamespace(run=run, SubprocessError=subprocess.SubprocessError))
    monkeypatch.setattr(products.binding, "bind", bound.append)
    monkeypatch.setattr(products.binding, "core_of_threads", dict)
    monkeypatch.setattr(products.inherited, "CORES", frozenset({3, 4, 5, 6}))
    products.main("fp32", "cpu", "2", "3")
    printed_now = json.loads(capsys.readouterr().out.removeprefix(available.MARKER))
    product = printed_now["products"]["NumPy"]
    assert printed_now["products"] == {"NumPy": measured("a BLAS") | {"measured_at": product["measured_at"]}}
    assert bound == [{3, 4, 5}]
    # The next one takes what is kept.
    monkeypatch.setattr(products, "subprocess", None)
    products.main("fp32", "cpu", "2", "3")
    assert json.loads(capsys.readouterr().out.removeprefix(available.MARKER)) == printed_now


def test_a_machine_that_cannot_be_measured_is_named_and_stops_nothing(capsys):
    assert products.measure([Job("ddp", 1, 1, Settings())], Launcher("mpich", "mpiexec", python=("no-such-python",))) == ({}, None)
    assert "no-such-python could not be started" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("precision", "device", "names"),
    [("fp32", "cpu", ["NumPy"]), ("fp64", "cpu", ["NumPy"]), ("bf16", "cpu", []), ("fp32", "cuda", [])],
)
def test_numpy_multiplies_on_cores_what_it_has(precision, device, names, capsys):
    library_products.main("numpy", precision, device, "1")
    by_name = json.loads(capsys.readouterr().out.removeprefix(library_products.MARKER))
    assert list(by_name) == names
    assert all(product["flops_per_second"] > 1e8 for product in by_name.values())


def test_pytorch_multiplies_by_its_own_library_and_in_float32_by_onednn():
    for precision, names in (("fp32", ["PyTorch", "oneDNN in PyTorch"]), ("fp64", ["PyTorch"]), ("bf16", ["PyTorch"])):
        by_pytorch = list(library_products.pytorch(Settings(precision=precision, device="cpu")))
        assert [product.name for product in by_pytorch] == names
        for product in by_pytorch:
            product.of_size(8)()


@pytest.mark.parametrize(
    ("settings", "vendor", "problem"),
    [
        (Settings(device="cpu"), "GenuineIntel", None),
        (Settings(device="cpu"), "AuthenticAMD", "the library is not built"),
        (Settings(device="cpu", precision="bf16"), "AuthenticAMD", None),
        (Settings(device="cuda"), "AuthenticAMD", None),
    ],
)
def test_without_an_effect_of_the_fast_kernels_their_product_is_not_measured(settings, vendor, problem, monkeypatch):
    monkeypatch.setattr(library_products.processor, "cpuinfo", lambda _key: vendor)
    monkeypatch.setattr(library_products.mkl_kernels, "problem", lambda: problem)
    monkeypatch.setattr(library_products.mkl_kernels, "load", None)
    assert list(library_products.pytorch_with_fast_mkl(settings)) == []


@pytest.mark.parametrize(("library", "names"), [("MKL 2024.2", [throughput.FAST_MKL]), ("open", []), (None, [])])
def test_the_fast_kernels_are_loaded_before_pytorch_and_have_the_product_of_mkl(library, names, monkeypatch):
    loaded = []

    def pytorch(_settings):
        assert loaded == [["--mkl-kernels", "fast"]]
        yield library_products.Product("PyTorch", None, library)
        yield library_products.Product("oneDNN in PyTorch", None)

    monkeypatch.setattr(library_products.processor, "cpuinfo", lambda _key: "AuthenticAMD")
    monkeypatch.setattr(library_products.mkl_kernels, "problem", lambda: None)
    monkeypatch.setattr(library_products.mkl_kernels, "load", loaded.append)
    monkeypatch.setattr(library_products, "pytorch", pytorch)
    assert [product.name for product in library_products.pytorch_with_fast_mkl(Settings(device="cpu"))] == names


@pytest.mark.parametrize(
    ("built_with", "device", "library"),
    [
        (WITH_MKL, "cpu", "MKL 2024.2"),
        ("Build settings: BLAS_INFO=open, BUILD_TYPE=Release", "cpu", "open"),
        ("PyTorch built with: GCC", "cpu", None),
        (f"{WITH_MKL}, CUDA Runtime 13.0", "cuda", "cuBLAS of CUDA 13.0"),
        (f"{WITH_MKL}, HIP Runtime 6.4.43482", "cuda", None),
    ],
)
def test_the_build_of_pytorch_names_its_library(built_with, device, library):
    assert library_products.blas_of(built_with, device) == library
