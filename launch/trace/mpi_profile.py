"""Readers of MPI profiles: the text of IBM's mpitrace in its older and newer layout, and the interposer's text and JSON.

The layout is IBM's (github.com/IBM/mpitrace). The older one differs in the rules, "Times and statistics from", MBytes for MiB, and
`hostname` without `cpu` in the table of tasks. Text has times in milliseconds; JSON has all digits.
"""

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common.errors import UserError

MEBIBYTE = 1 << 20
# A number, or the text of one.
Digits = str | float
# A JSON object of the interposer.
Fields = dict[str, Any]


class Sums(NamedTuple):
    """Number of calls, their bytes and seconds, without the `waited_seconds` of the barrier before them."""

    num_calls: int
    size_bytes: float
    seconds: float
    waited_seconds: float = 0.0


class Routine(NamedTuple):
    """The counters of one function. `sizes` are its calls by message size, `control` its control messages (JSON only)."""

    name: str
    sums: Sums
    sizes: tuple[Sums, ...] = ()
    control: Sums | None = None


class Task(NamedTuple):
    """A rank in the summary over all ranks. `cpu` is None where the file does not have it."""

    rank: int
    host: str
    cpu: int | None
    communication_seconds: float
    elapsed_seconds: float
    user_seconds: float
    system_seconds: float
    max_resident_bytes: float
    num_switches: int


class Profile(NamedTuple):
    """One rank's profile. `ended` names the end of the measured time: "MPI_Finalize()", or how the program ended without it.

    `tasks` is only in rank 0's profile, `num_threads` (threads that called MPI) only in JSON. `kinds` are the sums of payload, control,
    completion, io and other; None in IBM's files.
    """

    rank: int
    num_ranks: int
    ended: str
    # All time in MPI without MPI-IO; `waited_seconds` of it were in the barriers before collectives.
    communication_seconds: float
    elapsed_seconds: float
    user_seconds: float
    system_seconds: float
    max_resident_bytes: float
    routines: dict[str, Routine]
    nccl: dict[str, Routine]
    kinds: dict[str, Sums] | None
    tasks: tuple[Task, ...]
    no_summary_because: str | None
    num_threads: int | None = None
    waited_seconds: float | None = None

    def payload_bytes_per_second(self) -> float | None:
        """Computes the bytes of payload per second of payload and completion calls; None without such calls."""
        if self.kinds is None:
            return None
        seconds = self.kinds["payload"].seconds + self.kinds["completion"].seconds
        return self.kinds["payload"].size_bytes / seconds if seconds > 0 else None


HEAD = re.compile(r"^Data for MPI rank (\d+) of (\d+):(?: \(all communicators\))?$", re.MULTILINE)
TIMES = re.compile(r"^Times (?:and statistics )?from .+? to (.+)\.$", re.MULTILINE)
TABLE = re.compile(r"^(MPI|NCCL) Routine +#calls +avg\. bytes +time\(sec\)$")
ROW = re.compile(r"^(\w+) +(\d+) +([\d.]+) +([\d.]+)$")
SIZES = re.compile(r"^(\w+) +#calls +avg\. bytes +time\(sec\)$")
SIZE_ROW = re.compile(r"^ +(\d+) +([\d.]+) +([\d.]+)$")
KINDS = ("payload", "control", "completion", "other", "io")
KIND_ROW = re.compile(rf"^({'|'.join(KINDS)}) +(\d+) +(\d+) +([\d.]+) +([\d.]+)$")
TOTAL = re.compile(r"^([a-z ]+?) += ([\d.]+) \w+(?: \(including synchronization\))?\.$")
TOTALS = ("total communication time", "total elapsed time", "user cpu time", "system time", "max resident set size")
NO_SUMMARY = re.compile(r"^There is no summary for all tasks: (.*)\.$", re.MULTILINE)


def find(folder: Path) -> list[Path]:
    """Finds the profiles in a folder. A profile in both forms counts once, as the JSON, which has all digits."""
    paths = {path for path in folder.glob("mpi_profile.*") if path.suffix == ".json" or path.suffix[1:].isdecimal()}
    return sorted(path for path in paths if path.with_name(f"{path.name}.json") not in paths)


def read(path: str | Path) -> Profile:
    """Reads a profile. Raises UserError where the file is not a profile or is truncated."""
    path = Path(path)
    try:
        text = path.read_text(errors="replace")
        return _of_json(text, path) if text.lstrip().startswith("{") else _of_text(text, path)
    except OSError as problem:
        raise UserError(f"{path}: {problem.strerror}; give a file mpi_profile.JOB.RANK") from None
    except (KeyError, TypeError) as problem:
        raise UserError(f"{path} is damaged: {problem} is missing; copy it again") from None
    except json.JSONDecodeError as problem:
        raise UserError(f"{path} is truncated or damaged ({problem}); copy it again") from None
    except ValueError as problem:
        raise UserError(f"{path} is damaged ({problem}); copy it again") from None


def _of_text(text: str, path: Path) -> Profile:
    """Reads a text in IBM's layout."""
    head, times = HEAD.search(text), TIMES.search(text)
    if not head or not times:
        raise UserError(f"{path} is not an MPI profile (no 'Data for MPI rank'); give a file mpi_profile.JOB.RANK")
    lines = text.splitlines()
    rank, num_ranks = int(head[1]), int(head[2])
    totals = {match[1]: float(match[2]) for line in lines if (match := TOTAL.match(line))}
    tasks = _tasks(lines)
    is_complete = text.endswith("\n") and totals.keys() >= set(TOTALS) and (tasks is None or len(tasks) == num_ranks)
    if not is_complete:
        raise UserError(f"{path} is truncated after line {len(lines)}; copy it again, unless the run was killed while writing it")
    sizes = {name: tuple(_sums_of_average(*row) for row in rows) for name, rows in _tables(lines, SIZES, SIZE_ROW).items()}
    routines = {
        library: {name: Routine(name, _sums_of_average(*numbers), sizes.get(name, ())) for name, *numbers in rows}
        for library, rows in ({"MPI": [], "NCCL": []} | _tables(lines, TABLE, ROW)).items()
    }
    for routine in routines["MPI"].values():
        if routine.sums.size_bytes and sum(size.num_calls for size in routine.sizes) != routine.sums.num_calls:
            raise UserError(f"{path}: the message sizes of {routine.name} do not add up to its calls; the file is truncated or damaged")
    kinds = {match[1]: _sums(*match.groups()[1:]) for line in lines if (match := KIND_ROW.match(line))}
    kinds = {kind: kinds[kind] for kind in KINDS} if kinds else None
    reason = NO_SUMMARY.search(text)
    communication, elapsed, user, system, resident = (totals[total] for total in TOTALS)
    return Profile(
        rank, num_ranks, times[1], communication, elapsed, user, system, resident * MEBIBYTE, routines["MPI"], routines["NCCL"],
        kinds, tuple(tasks or ()), reason and reason[1], waited_seconds=totals.get("synchronization time"),
    )  # fmt: skip


def _sums(num_calls: Digits, size_bytes: Digits, seconds: Digits, waited_seconds: Digits = 0.0) -> Sums:
    return Sums(int(num_calls), int(size_bytes), float(seconds), float(waited_seconds))


def _sums_of_average(num_calls: str, average_bytes: str, seconds: str) -> Sums:
    return Sums(int(num_calls), int(num_calls) * float(average_bytes), float(seconds))


def _tables(lines: Iterable[str], heading: re.Pattern[str], row: re.Pattern[str]) -> dict[str, list[tuple[str, ...]]]:
    """Finds the rows below each heading, by the name in the heading, up to the first line that is neither row nor rule."""
    tables, current = {}, None
    for line in lines:
        if match := heading.match(line):
            current = tables.setdefault(match[1], [])
        elif current is not None and (match := row.match(line)):
            current.append(match.groups())
        elif not line.startswith("---"):
            current = None
    return tables


def _tasks(lines: Sequence[str]) -> list[Task] | None:
    """Reads the table of all ranks; None where the file has no such table."""
    start = next((number for number, line in enumerate(lines) if line.split()[:1] == ["taskid"]), None)
    if start is None:
        return None
    columns = [re.sub(r"\(.*\)", "", column).replace("hostname", "host") for column in lines[start].split()]
    rows = itertools.takewhile(lambda row: len(row) == len(columns), map(str.split, lines[start + 1 :]))
    return [_task_of_row(dict(zip(columns, row, strict=True))) for row in rows]


def _task_of_row(row: dict[str, str]) -> Task:
    return Task(
        int(row["taskid"]), row["host"], int(row["cpu"]) if "cpu" in row else None, float(row["comm"]), float(row["elapsed"]),
        float(row["user"]), float(row["system"]), float(row["size"]) * MEBIBYTE, int(row["switches"]),
    )  # fmt: skip


def _of_json(text: str, path: Path) -> Profile:
    """Reads the interposer's JSON."""
    content = json.loads(text)
    if content.get("format") != "tandem mpi profile 1":
        raise UserError(f"{path} is not an MPI profile (its format is not 'tandem mpi profile 1'); give a file mpi_profile.JOB.RANK.json")
    task = _task(content["own"])
    waited_seconds = sum(routine["waited_seconds"] for routine in content["routines"])
    return Profile(
        task.rank, content["num_ranks"], content["ended"], task.communication_seconds, task.elapsed_seconds, task.user_seconds,
        task.system_seconds, task.max_resident_bytes, _routines(content["routines"]), _routines(content["nccl"]),
        {kind: _sums_of_json(content["kinds"][kind]) for kind in KINDS}, tuple(map(_task, content["tasks"])),
        content["no_summary_because"], content["num_threads"], waited_seconds if content["barrier_before_collectives"] else None,
    )  # fmt: skip


def _task(fields: Fields) -> Task:
    return Task(**{name: fields[name] for name in Task._fields[:-1]}, num_switches=fields["switches"])


def _sums_of_json(fields: Fields) -> Sums:
    return _sums(fields["calls"], fields["bytes"], fields["seconds"], fields["waited_seconds"])


def _routines(rows: Iterable[Fields]) -> dict[str, Routine]:
    return {
        row["name"]: Routine(row["name"], _sums_of_json(row), tuple(map(_sums_of_json, row["histogram"])), _sums_of_json(row["control"]))
        for row in rows
    }
