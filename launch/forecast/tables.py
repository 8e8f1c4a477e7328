"""Scaling tables: throughput at several numbers of GPUs. Those of a user, as CSV or as records, and the published ones."""

import csv
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from common.bounds import RANKS
from common.command_line import shortened
from common.errors import UserError
from common.words import listed
from launch.report import runs

PUBLISHED = Path(__file__).with_name("published.csv")
SIZES, VALUES = ("gpus", "ranks"), ("samples_per_second", "seconds_per_epoch")
COLUMNS = (*SIZES, *VALUES, "backend", "scaling", "machine")
OF_PUBLISHED = (*COLUMNS, "table", "source", "gpus_per_node", "model")
LARGEST_FILE_BYTES = 10**7


class Table(NamedTuple):
    """Throughput of one backend by number of GPUs, ascending: samples a second, or epochs where `value` is seconds_per_epoch.

    Tables of equal `training` are compared. `scaling` is weak or strong. `gpus_per_node` is None where it is not known. A published table
    has a `name`, and in `group` its source and machine.
    """

    backend: str
    training: str
    scaling: str
    size_name: str
    value: str
    throughputs: Mapping[int, float]
    gpus_per_node: int | None = None
    name: str = ""
    group: tuple[str, str] = ("", "")

    @property
    def sizes(self) -> list[int]:
        return list(self.throughputs)

    @property
    def largest(self) -> int:
        return self.sizes[-1]

    def until(self, num_sizes: int) -> "Table":
        """Returns the table of its smallest sizes alone."""
        return self._replace(throughputs={size: self.throughputs[size] for size in self.sizes[:num_sizes]})

    def efficiency(self, size: int, throughput: float) -> float:
        """Returns the throughput of a GPU over that at the smallest size."""
        return throughput / size / (self.throughputs[self.sizes[0]] / self.sizes[0])

    def in_unit(self, throughput: float) -> float:
        """Returns a throughput as what was measured, which may be seconds."""
        return 1 / throughput if self.value == "seconds_per_epoch" else throughput


def published() -> list[Table]:
    """Returns the published tables (launch/forecast/README.md)."""
    rows_of: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in _rows(PUBLISHED, OF_PUBLISHED):
        rows_of[row["table"]].append(row)
    tables = []
    for name, rows in rows_of.items():
        (table,) = _of_rows(rows, PUBLISHED)
        group = re.split("[@:]", rows[0]["source"])[0], rows[0]["machine"]
        tables.append(table._replace(name=name, group=group, gpus_per_node=int(rows[0]["gpus_per_node"])))
    return tables


def read(path: Path) -> list[Table]:
    """Returns the tables of a CSV file, or of a folder of records, of one machine. Raises UserError for what is none."""
    tables = _of_records(path) if path.is_dir() else _of_rows(_rows(path, COLUMNS), path)
    if all(len(table.sizes) == 1 for table in tables):
        raise UserError(f"{path} has one size of each backend; measure a second one, such as twice as many GPUs")
    return tables


def _rows(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Returns the rows of a CSV file. Raises UserError for another file, and for columns that are not known."""
    if not path.is_file() or path.stat().st_size > LARGEST_FILE_BYTES:
        raise UserError(f"{path} is no scaling table; give a CSV with columns gpus and samples_per_second, or a folder of records")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, skipinitialspace=True, restkey="", restval="")
            rows, header = list(reader), reader.fieldnames or []
    except (ValueError, csv.Error):
        raise UserError(f"{path} is not a CSV file in UTF-8") from None
    # Cells beyond the header are under an empty name.
    if unknown := [name for names in (header, *rows) for name in names if name not in columns]:
        raise UserError(f"{path} has the unknown column {shortened(unknown[0])!r}; columns are {listed(columns)}")
    if len(set(header)) < len(header):
        raise UserError(f"{path} has a column twice; its header is {shortened(','.join(header))}")
    if not rows:
        raise UserError(f"{path} is empty; it needs a header, such as gpus,samples_per_second, and rows")
    return rows


def _of_rows(rows: Sequence[Mapping[str, str]], path: Path) -> list[Table]:
    """Returns a table for each backend and scaling in the rows of a CSV file."""
    size_name, value = (_only(rows, names, path) for names in (SIZES, VALUES))
    _expect_one_machine({row["machine"] for row in rows if row.get("machine")}, path)
    measured: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number, row in enumerate(rows, 2):
        where = f"{path}, row {number}"
        size, amount = (_number(row[name], f"{where}: {name}") for name in (size_name, value))
        scaling = row.get("scaling") or ("weak" if value == "samples_per_second" else "strong")
        if size != int(size) or RANKS.problem(size):
            raise UserError(f"{where}: {size_name} is {size:g}; it must be a whole number from 1 to {RANKS.at_most}")
        if scaling not in ("weak", "strong"):
            raise UserError(f"{where}: scaling is {shortened(scaling)!r}; it must be weak or strong")
        measured[row.get("backend") or "training", scaling][int(size)].append(amount if value == "samples_per_second" else 1 / amount)
    return [
        Table(backend, f"{scaling} scaling", scaling, size_name, value, _medians(by_size))
        for (backend, scaling), by_size in measured.items()
    ]


def _only(rows: Sequence[Mapping[str, str]], names: Sequence[str], path: Path) -> str:
    """Returns which of two columns has values. Raises UserError where both have, which are mixed units, and where neither has."""
    used = [name for name in names if any(row.get(name) for row in rows)]
    if len(used) != 1:
        raise UserError(f"{path} has {'both' if used else 'neither'} of {listed(names)}; give one of these columns")
    return used[0]


def _number(text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 1e-12 <= number <= 1e18:
        raise UserError(f"{where} is {shortened(text)!r}; it must be a positive number")
    return number


def _of_records(folder: Path) -> list[Table]:
    """Returns a table for each training and backend of completed runs that may be compared and were not oversubscribed."""
    records, _ = runs.split(runs.collect([folder])[0])
    _expect_one_machine({record.settings.machine or "unknown" for record in records}, folder)
    # What one node has cannot be seen from runs on one node.
    on_nodes = [record.num_ranks // record.num_nodes for record in records if record.num_nodes and record.num_nodes > 1]
    tables = []
    for comparison in runs.comparisons(records):
        by_backend: dict[str, dict[int, list[float]]] = defaultdict(dict)
        for entry in comparison.entries:
            if speeds := [record.samples_per_second for record in entry.ok if record.samples_per_second and not record.oversubscribed]:
                by_backend[entry.backend][entry.num_ranks] = speeds
        tables += [
            Table(backend, comparison.name, comparison.scaling, "ranks", VALUES[0], _medians(by_size), max(on_nodes, default=None))
            for backend, by_size in by_backend.items()
        ]
    if not tables:
        raise UserError(f"{folder} has no completed run with a throughput")
    return tables


def _expect_one_machine(machines: Iterable[str], path: Path) -> None:
    if len(names := sorted(set(machines))) > 1:
        raise UserError(f"{path} has the machines {listed(names)}; forecast each by itself")


def _medians(measured: Mapping[int, Iterable[float]]) -> dict[int, float]:
    return {size: median(measured[size]) for size in sorted(measured)}
