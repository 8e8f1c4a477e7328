"""Keeps the matrix products of a node for the matrices of the next hour, since measuring them takes seconds.

A measurement has a file of its own for all that it depends on: the boot of the node, the cores and their quota, the arguments, the
packages, the variables that libraries read, and the code that measures. A matrix whose runs exceed it removes the file (`remove_exceeded`).
"""

import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from common import cache
from common.process import environment
from common.record.definition import Record
from common.training import throughput
from launch.report.limits import TOLERANCE
from launch.run import library_products

MAX_AGE = timedelta(hours=1)
BOOT = Path("/proc/sys/kernel/random/boot_id")
# By name, as those of a record.
Products = dict[str, dict[str, Any]]


class Measured(NamedTuple):
    """Products by name, and the file on their node that keeps them; None where there is none."""

    products: Products
    file: str | None


def file_for(arguments: Sequence[str], variables: Mapping[str, str]) -> Path | None:
    """Names the file for what this process would measure on its cores with these variables; None where nothing can be kept."""
    folder = cache.folder()
    if not folder or not BOOT.exists():
        return None
    node = vars(environment.describe(of_record=False)) | {"variables": environment.recorded(variables)}
    code = [Path(module.__file__ or "").read_text() for module in (library_products, throughput)]
    parts = (BOOT.read_text(), sorted(os.sched_getaffinity(0)), [*arguments], os.path.realpath(sys.prefix), node, code)
    digest = hashlib.sha256(json.dumps(parts, default=vars, sort_keys=True).encode()).hexdigest()
    return folder / "products" / f"{digest[:16]}.json"


def read(file: Path | None) -> Products:
    """Reads the products of a file, none where it is missing, unreadable or older than an hour."""
    with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
        products: Products = json.loads(cache.read(file) or "{}")
        ages = [datetime.now(UTC) - datetime.fromisoformat(product["measured_at"]) for product in products.values()]
        if all(timedelta() <= age <= MAX_AGE for age in ages):
            return products
    return {}


def write(file: Path | None, products: Products) -> None:
    """Writes products into a file and removes old ones, where that can be done: whoever cannot keep them measures again."""
    if file and products:
        cache.write(file, json.dumps(products))
        with contextlib.suppress(OSError):
            for kept in file.parent.glob("*.json"):
                if time.time() - kept.stat().st_mtime > MAX_AGE.total_seconds():
                    kept.unlink(missing_ok=True)


def remove_exceeded(measured: Measured, records: Iterable[Record]) -> None:
    """Removes the file of products that a run of these has exceeded, which were measured while the node was slower."""
    fastest = max((product["flops_per_second"] for product in measured.products.values()), default=0.0)
    if measured.file and any(_exceeds(record, fastest) for record in records):
        with contextlib.suppress(OSError):
            Path(measured.file).unlink()


def _exceeds(record: Record, flops_per_second: float) -> bool:
    return (record.peak_flops_per_second or 0.0) > (1 + TOLERANCE) * flops_per_second or (record.share_of_peak or 0.0) > 1
