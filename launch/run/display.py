"""Shows a matrix while it runs: a live line on a terminal, plain lines elsewhere."""

import contextlib
import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

from common.progress import Progress
from common.record.definition import Record
from launch.report.words import ranks_of
from launch.run.plan import Job

PLAIN_INTERVAL_SECONDS = 10.0


class Display:
    """Shows which run is running and its progress. It is a context manager around the whole matrix."""

    def __init__(self, num_jobs: int, console: Console | None = None) -> None:
        self.console = console or Console()
        self.num_jobs = num_jobs
        self.printed_at = 0.0
        self.live = Live(console=self.console, refresh_per_second=4, transient=True) if self.console.is_terminal else None

    def __enter__(self) -> "Display":
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            with contextlib.suppress(BrokenPipeError):
                self.live.stop()

    def print_line(self, text: str) -> None:
        self.console.print(Text(text), soft_wrap=True)

    def begin(self, number: int, job: Job) -> None:
        self.printed_at = time.monotonic()
        self.show(f"{self.title(number, job)}: starting")

    def progress(self, number: int, job: Job, progress: Progress) -> None:
        if self.live or time.monotonic() - self.printed_at >= PLAIN_INTERVAL_SECONDS:
            self.printed_at = time.monotonic()
            self.show(f"{self.title(number, job)}: {describe(progress)}")

    def finish(self, number: int, job: Job, record: Record) -> None:
        self.print_line(f"{self.title(number, job)}: {outcome(record)}")

    def title(self, number: int, job: Job) -> str:
        kind = " traced" if job.settings.timeline or job.settings.trace else ""
        return f"[{number}/{self.num_jobs}] {job.settings.workload} {job.backend} {ranks_of(job.num_ranks)}{kind}"

    def show(self, line: str) -> None:
        """Shows what a run does now: on a terminal in the place of the line before, elsewhere as a further line."""
        if self.live:
            self.live.update(Text(line))
        else:
            self.print_line(line)


def describe(progress: Progress) -> str:
    """Describes how far a run is."""
    parts = [f"epoch {progress.epoch}/{progress.num_epochs}", f"step {progress.step}/{progress.num_steps}"]
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4f}")
    if progress.accuracy is not None:
        parts.append(f"accuracy {progress.accuracy:.4f}")
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
        result = f"reached {record.target:g} in {record.time_to_solution_seconds:.2f} s (accuracy {record.accuracy:.4f})"
    else:
        result = f"not reached {record.target:g} (accuracy {record.accuracy:.4f} after {len(record.accuracies)} epochs)"
    return result + (f"; then its launcher failed: {record.launcher_error}" if record.launcher_error else "")
