"""Measures the matrix products of one library: python -m launch.run.library_products LIBRARY PRECISION DEVICE THREADS prints them as JSON.

launch/run/products.py runs this in a process of its own, which a library may end.
"""

import ctypes
import dataclasses
import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.config import Settings
from common.process import mkl_kernels, processor
from common.process.ranks import Ranks
from common.training import throughput

# Before the JSON, since oneDNN prints lines of its own.
MARKER = "tandem-products: "
# Of a GPU, TF32 is another speed; cores compute the product of tf32 in float32.
IN_FLOAT32 = ("fp32", "tf32")
# The fastest counts: other processes make a product slower, nothing makes it faster.
NUM_REPEATS = 3
INTEL = "GenuineIntel"
CORE_NAME = ("scipy_openblas_get_corename64_", "openblas_get_corename64_", "openblas_get_corename")


class Product(NamedTuple):
    """A product as `throughput.fastest` takes it, its name in the record, and the library behind it.

    That is None where it is not known, or may be oneDNN, which prints its name when it is used.
    """

    name: str
    of_size: Callable[[int], Callable[[], object]]
    library: str | None = None
    instruction_set: str | None = None


def pytorch(settings: Settings) -> Iterator[Product]:
    """Yields the products that PyTorch has: its own, and in float32 on cores oneDNN's, which a Linear does not use there."""
    import torch

    from frameworks.shared.pytorch import devices

    device = devices.pick_device(settings, Ranks())
    uses_blas = device.type == "cuda" or settings.precision != "bf16"
    library = blas_of(torch.__config__.show(), device.type) if uses_blas else None
    yield Product("PyTorch", partial(devices.product, device, settings.precision), library)
    if device.type == "cpu" and settings.precision in IN_FLOAT32 and torch.backends.mkldnn.is_available():
        yield Product("oneDNN in PyTorch", onednn_product)


def pytorch_with_fast_mkl(settings: Settings) -> Iterator[Product]:
    """Yields PyTorch's product on cores with the library of --mkl-kernels fast, which does nothing on a processor of Intel."""
    if settings.device == "cuda" or settings.precision == "bf16" or processor.cpuinfo("vendor_id") == INTEL or mkl_kernels.problem():
        return
    mkl_kernels.load(["--mkl-kernels", "fast"])
    for product in pytorch(settings):
        if product.name == "PyTorch" and product.library and product.library.startswith("MKL"):
            yield product._replace(name=throughput.FAST_MKL)


def blas_of(built_with: str, device: str) -> str | None:
    """Names the library of linear algebra for `cpu` or `cuda` in PyTorch's description of its build, with the version of MKL or CUDA.

    Returns None where it has none.
    """
    if device == "cuda":
        cuda = re.search(r"CUDA Runtime ([\d.]+)", built_with)
        return cuda and f"cuBLAS of CUDA {cuda[1]}"
    if mkl := re.search(r"Math Kernel Library Version ([\d.]+)", built_with):
        return f"MKL {mkl[1]}"
    blas = re.search(r"BLAS_INFO=(\w+)", built_with)
    return blas and blas[1]


def onednn_product(size: int) -> Callable[[], object]:
    """Returns a function that multiplies two square matrices by PyTorch's oneDNN."""
    import torch

    matrix = torch.randn(size, size).to_mkldnn()
    return partial(torch.nn.functional.linear, matrix, matrix)


def tensorflow(settings: Settings) -> Iterator[Product]:
    """Yields TensorFlow's product."""
    from frameworks.shared.tensorflow import devices

    devices.pick_device(settings, Ranks())
    yield Product("TensorFlow", partial(devices.product, settings.precision))


def numpy(settings: Settings) -> Iterator[Product]:
    """Yields the product of NumPy's BLAS, which is for cores and has no bfloat16."""
    if settings.device == "cuda" or settings.precision == "bf16":
        return
    dtype = np.float64 if settings.precision == "fp64" else np.float32

    def of_size(size: int) -> Callable[[], object]:
        matrix = np.random.default_rng(0).standard_normal((size, size)).astype(dtype)
        return partial(np.matmul, matrix, matrix, np.empty_like(matrix))

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    yield Product("NumPy", of_size, f"{blas.get('name')} {blas.get('version')}", openblas_kernels())


def openblas_kernels() -> str | None:
    """Names the processor whose kernels OpenBLAS has chosen; None where none is loaded, or it does not say."""
    for path in {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "openblas" in line}:
        library = ctypes.CDLL(path)
        for name in CORE_NAME:
            if hasattr(library, name):
                getattr(library, name).restype = ctypes.c_char_p
                return getattr(library, name)().decode()
    return None


LIBRARIES = {"pytorch": pytorch, "pytorch_with_fast_mkl": pytorch_with_fast_mkl, "tensorflow": tensorflow, "numpy": numpy}


def main(library: str, precision: str, device: str, threads: str) -> None:
    """Prints the fastest products of a library."""
    settings = dataclasses.replace(Settings(), precision=precision, device=device, threads=int(threads))
    measured = {
        product.name: {
            "flops_per_second": max(throughput.fastest(product.of_size) for _ in range(NUM_REPEATS)),
            "library": product.library, "instruction_set": product.instruction_set,
        }
        for product in LIBRARIES[library](settings)
    }  # fmt: skip
    print(MARKER + json.dumps(measured), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
