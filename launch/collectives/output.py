"""What rank 0 prints and writes: the table, and the results as JSON."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from common import units
from common.process import environment
from common.process.ranks import Ranks
from common.record import records
from launch.collectives import options as collective_options
from launch.collectives import table
from launch.collectives.measurement import Fit, Measurement
from launch.report.export import files

SCHEMA_VERSION = 1


@dataclass
class Output:
    """Prints the table as it grows, and writes the file after each library, so that it exists even if a later library fails.

    All ranks call it alike; only rank 0 prints and writes. `reasons` has why a library is skipped. `copies` has the seconds of a memory
    copy, in each repeat, by size in bytes. `versions` has those of libraries that are not Python packages.
    """

    options: collective_options.Collectives
    ranks: Ranks
    reasons: dict[str, str]
    num_nodes: int = 0
    oversubscribed: bool = False
    copies: dict[int, list[float]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    num_shown: int = 0

    def begin(self, num_nodes: int, oversubscribed: bool, copies: dict[int, list[float]]) -> None:
        """Prints what all measurements share."""
        self.num_nodes, self.oversubscribed, self.copies = num_nodes, oversubscribed, copies
        sizes = collective_options.sizes(self.options)
        self.print(
            f"# {self.ranks.size} ranks on {num_nodes} node{'' if num_nodes == 1 else 's'}, {units.whole_text(sizes[0])} to "
            f"{units.whole_text(sizes[-1])}",
            f"# time: {table.interval_text(self.options.repeats)}",
            "# copy: of the size in main memory, on all ranks at the same time",
            *(["# the ranks share cores: with cores of their own they would be faster"] if self.oversubscribed else []),
            *(f"# skipping {name}: {reason}" for name, reason in self.reasons.items()),
        )

    def write(self, measurements: list[Measurement], fits: list[Fit], is_last: bool) -> None:
        """Writes the requested file, with what has been measured so far; prints where it is after the last library."""
        if self.ranks.rank == 0 and self.options.json:
            files.write(self.options.json, as_json(self.document(measurements, fits)))
            if is_last:
                self.print(f"# json: {self.options.json}")

    def document(self, measurements: Iterable[Measurement], fits: Iterable[Fit]) -> dict[str, Any]:
        """Returns the content of the JSON file."""
        described = environment.describe()
        return {
            "schema_version": SCHEMA_VERSION,
            "machine": records.machine_name(self.options.machine),
            "num_ranks": self.ranks.size,
            "num_nodes": self.num_nodes,
            "oversubscribed": self.oversubscribed,
            "launcher": self.ranks.source,
            "versions": described.packages | {"python": described.python} | self.versions,
            **{key: getattr(described, key) for key in ("host", "os", "cpu", "num_cores", "memory_bytes", "git_commit", "variables")},
            "memory_copy": [{"size_bytes": size, "seconds": seconds} for size, seconds in self.copies.items()],
            "measurements": [entry(measurement) for measurement in measurements],
            "fits": [fit._asdict() | {"regimes": [regime._asdict() for regime in fit.regimes]} for fit in fits],
        }

    def next_place(self) -> str:
        """Counts the collectives of all libraries: returns the place of the next one, as in 3/21."""
        self.num_shown += 1
        num_libraries = len(collective_options.libraries(self.options)) - len(self.reasons)
        return f"{self.num_shown}/{num_libraries * len(collective_options.collectives(self.options))}"

    def print(self, *lines: str) -> None:
        if self.ranks.rank == 0:
            print("\n".join(lines), flush=True)


def entry(measurement: Measurement) -> dict[str, Any]:
    """Returns a measurement with what follows from it."""
    barrier = measurement.collective == "barrier"
    return measurement._asdict() | {
        "median_seconds": measurement.median_seconds,
        "low_seconds": min(measurement.seconds),
        "high_seconds": max(measurement.seconds),
        "algorithm_bytes_per_second": None if barrier else measurement.algorithm_bytes_per_second,
        "bus_bytes_per_second": None if barrier else measurement.bus_bytes_per_second,
    }


def as_json(content: Mapping[str, object]) -> str:
    """Writes the document as text, with a line for each measurement and fit."""
    parts = [f'"{key}": {_lines(value)}' for key, value in content.items()]
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def _lines(value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]"
    return json.dumps(value)
