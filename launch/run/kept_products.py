"""Keeps the matrix products of a node (launch/run/kept.py), until a run exceeds them."""

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common.record.definition import Record
from common.training import throughput
from launch.report.limits import TOLERANCE
from launch.run import kept, library_products

# By name, as those of a record.
Products = dict[str, dict[str, Any]]


class Measured(NamedTuple):
    """Products by name, and the file on their node that keeps them; None where there is none."""

    products: Products
    file: str | None


def file_for(arguments: Sequence[str], variables: Mapping[str, str]) -> Path | None:
    """Names the file for what this process would measure on its cores with these variables; None where nothing can be kept."""
    code = [Path(module.__file__ or "") for module in (library_products, throughput)]
    return kept.file_for("products", code, variables, sorted(os.sched_getaffinity(0)), [*arguments])


def read(file: Path | None) -> Products:
    """Reads the products of a file, none where it has no products of the last hour."""
    with contextlib.suppress(TypeError, AttributeError):
        products: Products = kept.read(file) or {}
        if all("measured_at" in product for product in products.values()):
            return products
    return {}


def remove_exceeded(measured: Measured, records: Iterable[Record]) -> None:
    """Removes the file of products that a run of these has exceeded, which were measured while the node was slower."""
    fastest = max((product["flops_per_second"] for product in measured.products.values()), default=0.0)
    if measured.file and any(_exceeds(record, fastest) for record in records):
        with contextlib.suppress(OSError):
            Path(measured.file).unlink()


def _exceeds(record: Record, flops_per_second: float) -> bool:
    return (record.peak_flops_per_second or 0.0) > (1 + TOLERANCE) * flops_per_second or (record.share_of_peak or 0.0) > 1
