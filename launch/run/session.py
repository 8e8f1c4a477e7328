"""The runs of a matrix: group after group, shown while they run, and then reported.

How far the matrix is stands in the last line of a terminal, or elsewhere in a line now and then. How long the rest takes follows from the
runs before. What would not end before the allocation around the matrix does is not begun.
"""

import contextlib
import functools
import math
import os
import secrets
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from common.config import cores_per_rank
from common.declarations import ROOT
from common.errors import printable
from common.progress import Progress
from common.ranks import binding, machine
from common.record.definition import Record
from common.words import ranks_of
from launch.launchers import batch_systems
from launch.launchers.commands import Launcher
from launch.run import runner, turns
from launch.run.options import Matrix
from launch.run.plan import Job, groups
from launch.run.turns import Run

# The program of a matrix, by its path from where it was started; the matrix goes to another folder.
PROGRAM = os.path.relpath(ROOT / "launch" / "matrix.sh") if ROOT.is_relative_to(Path.cwd()) else str(ROOT / "launch" / "matrix.sh")
# Reports the records of a matrix that has ended.
Report = Callable[[Sequence[Record]], object]
PLAIN_INTERVAL_SECONDS = 30.0
# Epochs to a target differ from seed to seed, and the page is written when all runs have ended.
MARGIN = 1.3


class Estimate:
    """The seconds that a run of each workload and size last took, with its start.

    Of a size that did not run yet they are those of the nearest one, and as many times longer as more ranks share a core. `num_cores` are
    those of this node, and `end` is that of the allocation in seconds since 1970; None: it does not end.
    """

    def __init__(self, num_cores: float, end: float | None = None) -> None:
        self._num_cores, self._end = num_cores, end
        # Seconds as of one rank a core, by workload and number of ranks.
        self._seconds: dict[tuple[str, int], float] = {}

    def add(self, jobs: Sequence[Job], seconds: float) -> None:
        """Notes how long jobs took that ran side by side."""
        for job in jobs:
            self._seconds[job.settings.workload, job.num_ranks] = seconds / len(jobs) / self._ranks_per_core(job)

    def seconds(self, jobs: Iterable[Job]) -> float:
        """Returns the seconds that jobs take; 0 where none has ended."""
        return sum(map(self._seconds_of, jobs)) if self._seconds else 0.0

    def has_time_for(self, jobs: Iterable[Job]) -> bool:
        """Returns whether jobs that begin now would end before the allocation does."""
        return self._end is None or time.time() + MARGIN * self.seconds(jobs) < self._end

    def _ranks_per_core(self, job: Job) -> float:
        return max(job.ranks_per_node * cores_per_rank(job.settings) / self._num_cores, 1.0)

    def _seconds_of(self, job: Job) -> float:
        nearest = min(self._seconds, key=lambda key: (key[0] != job.settings.workload, abs(key[1] - job.num_ranks)))
        return self._seconds[nearest] * self._ranks_per_core(job)


def num_cores() -> float:
    """Returns the number of cores that the runs of this node share."""
    return min(binding.num_cores(os.sched_getaffinity(0), binding.core_of_threads()), machine.quota_cores() or math.inf)


class Display:
    """Shows how far a matrix is, and what it waits for. It is a context manager around the whole matrix."""

    def __init__(
        self, jobs: Sequence[Job], estimate: Estimate, console: Console | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.console = console or Console()
        self.num_ended = self.num_begun = 0
        self.now = now
        self.began = self.group_began = now()
        self.jobs, self.estimate = jobs, estimate
        # Since when the run starts that was started last, and how long those of its group took before it.
        self.start_began: float | None = None
        self.startup_seconds = 0.0
        self.group: Sequence[Job] = ()
        self.num_started, self.group_records = 0, list[Record]()
        self.printed_at: float | None = None
        self.status = self.console.status("")

    def __enter__(self) -> "Display":
        if self.console.is_terminal:
            self.status.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.status.stop()

    def print_line(self, text: str) -> None:
        self.console.print(Text(printable(text)), soft_wrap=True)

    def begin_group(self, group: Sequence[Job]) -> None:
        """Notes the runs that take turns from now on."""
        self.group, self.num_started, self.group_records = group, 0, []
        self.num_begun += len(group)
        self.group_began, self.startup_seconds = self.now(), 0.0

    def begin(self, job: Job) -> None:
        """Notes that a run of the group starts."""
        self.num_started += 1
        self._end_start()
        self.start_began = self.now()
        of_group = f" run {self.num_started} of {len(self.group)}" if len(self.group) > 1 else ""
        self.show(f"starting{of_group}: {title(job)}")

    def progress(self, job: Job, progress: Progress) -> None:
        """Notes how far a run is."""
        self._end_start()
        num_training = self.num_started - len(self.group_records)
        kind = f"training in turns, {num_training} runs" if num_training > 1 else "training"
        self.show(f"{kind}: {title(job)}, {describe(progress)}")

    def finish(self, job: Job, record: Record) -> None:
        """Notes that a run has ended. One that shares its group has a line of its own only if it failed."""
        self.num_ended += 1
        self.group_records.append(record)
        if len(self.group) < 2 or record.status != "ok" or record.launcher_error:
            self.print_line(f"[{self.num_ended}/{len(self.jobs)}] {title(job)}: {outcome(record)}")

    def end_group(self) -> None:
        """Prints the line of the group, and estimates the time left anew."""
        group_seconds = self.now() - self.group_began
        self._end_start()
        if len(self.group) > 1:
            self.print_line(f"[{self.num_ended}/{len(self.jobs)}] {summary(self.group_records, group_seconds, self.startup_seconds)}")
        self.estimate.add(self.group, group_seconds)
        self.group, self.group_began = (), self.now()

    def _end_start(self) -> None:
        """Adds up how long the run took to start that was started last."""
        if self.start_began is not None:
            self.startup_seconds += self.now() - self.start_began
            self.start_began = None

    def show(self, waits_for: str) -> None:
        """Shows how far the matrix is and what it waits for: in the last line of a terminal, elsewhere in lines, of which there are few."""
        line = f"{self.how_far()}; {waits_for}"
        if self.console.is_terminal:
            self.status.update(Text(printable(line), no_wrap=True, overflow="ellipsis"))
        elif self.printed_at is None or self.now() - self.printed_at >= PLAIN_INTERVAL_SECONDS:
            self.printed_at = self.now()
            self.print_line(line)

    def how_far(self) -> str:
        """Returns how many runs have ended, in which time, and how long the others take."""
        seconds_left = self.estimate.seconds(self.group) - (self.now() - self.group_began)
        expected = max(seconds_left, 0.0) + self.estimate.seconds(self.jobs[self.num_begun :])
        left = f", about {duration(expected)} left" if expected else ""
        return f"{self.num_ended}/{len(self.jobs)} runs in {duration(self.now() - self.began)}{left}"


def run_all(matrix: Matrix, run_records: list[Record], jobs: Sequence[Job], launcher: Launcher, report: Report) -> int:
    """Runs the jobs, those of a group side by side, shows them while they run, and returns the exit status.

    `report` is called at the end with the records, also those that were done before.
    """
    cores = num_cores()
    estimate = Estimate(cores, batch_systems.end_time())
    not_begun: list[Job] = []
    try:
        with Display(jobs, estimate) as display:
            for group in groups(jobs, matrix.side_by_side, cores):
                if not estimate.has_time_for(group):
                    not_begun += group
                    continue
                run_group(group, launcher, matrix.time_limit, display, run_records)
    finally:
        if run_records:
            report(run_records)
        if not_begun:
            print(describe_left(not_begun))
    all_ok = all(record.status == "ok" and not record.launcher_error for record in run_records)
    return 0 if all_ok and not not_begun else 1


def run_group(
    group: Sequence[Job],
    launcher: Launcher,
    time_limit_seconds: float,
    display: Display,
    run_records: list[Record],
) -> None:
    """Runs jobs side by side and adds their records to those that are done, also where it is interrupted."""
    ended: set[int] = set()
    # A name that nobody can guess: the folder is open to all users. The first run makes the file.
    turns_file = Path(tempfile.gettempdir()) / f"tandem-turns-{secrets.token_hex(16)}"

    def start(job: Job) -> Run[Record]:
        display.begin(job)
        on_progress = functools.partial(display.progress, job)
        return runner.run_job(job, launcher, time_limit_seconds, on_progress, turns_file if len(group) > 1 else None)

    def on_end(index: int, record: Record) -> None:
        ended.add(index)
        run_records.append(record)
        display.finish(group[index], record)

    display.begin_group(group)
    try:
        starts = [functools.partial(start, job) for job in group]
        turns.side_by_side(starts, turns.fits_beside, on_end)
        display.end_group()
    except KeyboardInterrupt:
        interrupted = [runner.recorded(job) for index, job in enumerate(group) if index not in ended]
        run_records += filter(None, interrupted)
        raise
    finally:
        turns_file.unlink(missing_ok=True)


def describe_left(jobs: Iterable[Job]) -> str:
    """Describes the jobs that were not begun, and the command that runs them."""
    arguments = sys.argv[1:] if "--resume" in sys.argv else [*sys.argv[1:], "--resume"]
    runs = ", ".join(str(job.settings.run_id) for job in jobs)
    command = shlex.join([PROGRAM, *arguments])
    return f"left, since the allocation would end before them: {runs}\nrun them in another one: {command}"


def duration(seconds: float) -> str:
    """Returns a time as text, such as `40 s`, `3 min 5 s` or `2 h 10 min`."""
    minutes, seconds_of_minute = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds_of_minute} s" if minutes else f"{seconds_of_minute} s"


def title(job: Job) -> str:
    """Returns the workload, backend and size of a job, and whether it is a control or traced."""
    kind = "traced" if job.settings.timeline or job.settings.trace else job.settings.control
    run = f"{job.settings.workload} {job.backend} {ranks_of(job.num_ranks)}"
    return f"{run} {kind}" if kind else run


def summary(records: Sequence[Record], seconds: float, startup_seconds: float) -> str:
    """Returns the line of runs of one workload and repeat that took turns: the first at each size, and how many missed the target.

    `seconds` are those of all of them together, and `startup_seconds` the part in which one of them started.
    """
    name = f"{records[0].workload}, repeat {records[0].repeat + 1}: " if records else ""
    parts = [f"{name}{len(records)} runs in {duration(seconds)}, of which {duration(startup_seconds)} start-up"]
    candidates = [record for record in records if record.status == "ok" and not record.settings.control]
    reached = [(time, record) for record in candidates if (time := record.time_to_solution_seconds) is not None]
    for size in sorted({record.num_ranks for _, record in reached}):
        time_of_first, first = min((pair for pair in reached if pair[1].num_ranks == size), key=lambda pair: pair[0])
        parts.append(f"{first.backend} first at {ranks_of(size)}, {time_of_first:.2f} s")
    counts = {
        "did not complete": sum(record.status != "ok" for record in records),
        # Runs of a fixed length do not train up to it.
        "missed the target": sum(
            record.status == "ok" and record.reached is False and record.settings.stop_at_target for record in records
        ),
    }
    return "; ".join([*parts, *(f"{number} {outcome}" for outcome, number in counts.items() if number)])


def describe(progress: Progress) -> str:
    """Describes how far a run is."""
    parts = [f"epoch {progress.epoch}/{progress.num_epochs}", f"step {progress.step}/{progress.num_steps}"]
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4f}")
    if progress.accuracy is not None:
        parts.append(f"{progress.metric} {progress.accuracy:.4f}")
    seconds_left = progress.seconds_left()
    if seconds_left is not None:
        parts.append(f"at most {seconds_left} s left")
    return ", ".join(parts)


def outcome(record: Record) -> str:
    """Describes in one line how a run ended."""
    if record.status != "ok":
        return f"{record.status}: {record.error}"
    if record.reached is None:
        result = f"{record.samples_per_second:.1f} samples/s"
    elif record.reached:
        result = f"reached {record.target:g} in {record.time_to_solution_seconds:.2f} s ({record.metric} {record.accuracy:.4f})"
    else:
        result = f"not reached {record.target:g} ({record.metric} {record.accuracy:.4f} after {len(record.accuracies)} epochs)"
    return result + (f"; then its launcher failed: {record.launcher_error}" if record.launcher_error else "")
