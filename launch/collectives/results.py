"""The results as JSON and CSV."""

import csv
import io
import json

from common.record import records

SCHEMA_VERSION = 1
COLUMNS = (
    "library", "collective", "in_place", "num_ranks", "size_bytes", "num_elements", "median_seconds", "low_seconds", "high_seconds",
    "algorithm_bytes_per_second", "bus_bytes_per_second", "num_wrong", "num_iterations", "seconds",
)  # fmt: skip


def document(machine, ranks, num_nodes, oversubscribed, versions, copies, measurements, fits):
    """The content of the JSON file. `versions`: those of libraries that are not Python packages. `copies`: {size in bytes: seconds by
    repeat} of a memory copy."""
    environment = records.environment()
    return {
        "schema_version": SCHEMA_VERSION,
        "machine": machine,
        "num_ranks": ranks.size,
        "num_nodes": num_nodes,
        "oversubscribed": oversubscribed,
        "launcher": ranks.source,
        "versions": environment["packages"] | {"python": environment["python"]} | versions,
        **{key: environment[key] for key in ("host", "os", "cpu", "num_cores", "memory_bytes", "git_commit", "variables")},
        "memory_copy": [{"size_bytes": size, "seconds": seconds} for size, seconds in copies.items()],
        "measurements": [entry(measurement) for measurement in measurements],
        "fits": [fit._asdict() | {"regimes": [regime._asdict() for regime in fit.regimes]} for fit in fits],
    }


def entry(measurement):
    """A measurement with what follows from it."""
    barrier = measurement.collective == "barrier"
    return measurement._asdict() | {
        "median_seconds": measurement.median_seconds,
        "low_seconds": min(measurement.seconds),
        "high_seconds": max(measurement.seconds),
        "algorithm_bytes_per_second": None if barrier else measurement.algorithm_bytes_per_second,
        "bus_bytes_per_second": None if barrier else measurement.bus_bytes_per_second,
    }


def as_json(content):
    """The document as text, with a line for each measurement and fit."""
    parts = [f'"{key}": {_lines(value)}' for key, value in content.items()]
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def _lines(value):
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]"
    return json.dumps(value)


def as_csv(measurements):
    """One line for each measurement; the seconds of its repeats are in one cell, separated by spaces."""
    written = io.StringIO()
    lines = csv.DictWriter(written, COLUMNS, lineterminator="\n")
    lines.writeheader()
    for measurement in measurements:
        lines.writerow(entry(measurement) | {"seconds": " ".join(map(str, measurement.seconds))})
    return written.getvalue()
