"""The lesson of reading data from disk: formats, workers and ranks, and how long training waits with each."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple, get_args, get_type_hints

import numpy as np

from common.command_line import FROM_1, POSITIVE, RANKS, THREADS, Bounds, names_in
from common.config import Settings
from common.data import formats
from common.errors import UserError
from launch.conversion import writing
from launch.lesson import running
from launch.lesson.throttle import throttled
from launch.report import entries
from launch.report.export import colours, files, terminal, vega_lite
from launch.report.questions import reading
from launch.report.words import ranks_of
from launch.run.plan import plan, stamped

MEMORY = "memory"
DATA_FORMATS = get_args(get_type_hints(Settings)["data_format"])
MAX_WORKERS = {"webdataset": 1, "tfrecord": 1, "hdf5-mpio": 0}
MB = 1e6
BAR_WIDTH = 60
PARTS = {"waits for samples": colours.VERMILION, "computes and exchanges": colours.STAGES["train"]}
BAR_HEIGHT = 18


@dataclass(frozen=True)
class Data:
    """What reading from disk costs: an epoch with each format, number of workers and number of ranks."""

    formats: str = "memory,npy,safetensors,hdf5,files,webdataset,tfrecord"
    """Formats, separated by commas. memory is left out where the data is made larger by --copies."""
    workers: Annotated[tuple[int, ...], Bounds(at_least=0, at_most=THREADS.at_most)] = (0, 1)
    """Numbers of reading threads of each rank; 0: the training itself reads."""
    ranks: Annotated[tuple[int, ...], RANKS] = (1, 2)
    """Numbers of ranks."""
    backend: str = "ddp"
    """Backend that trains."""
    workload: str = "cnn"
    """Workload that is trained."""
    copies: Annotated[int, FROM_1] = 1
    """Repeat the training samples so many times."""
    steps: Annotated[int | None, FROM_1] = None
    """Train only so many steps of the epoch. Default: all."""
    data_budget: Annotated[float | None, POSITIVE] = None
    """MiB of memory of each rank for samples. Default: a quarter of the node's, divided by its ranks."""
    cold: bool = False
    """Take the data out of the page cache before the epoch, so that it is read from the disk."""
    read_rate: Annotated[float | None, POSITIVE] = None
    """Limit each rank's reading to so many MB a second, as on a file system that others use too. Default: as fast as it is."""
    read_operations: Annotated[float | None, POSITIVE] = None
    """Limit each rank's reading to so many opened files and reads a second."""
    picture: Path | None = None
    """Write the steps and their waiting as an SVG picture."""
    folder: Path = Path("data")
    """Folder for the converted data, one folder for each format; kept for the next time."""
    runs: running.Options = running.DEFAULT

    def run(self):
        """Runs the lesson and returns the exit status. Raises UserError, before anything has run, for what cannot work."""
        if unknown := [name for name in names_in(self.formats) if name not in DATA_FORMATS]:
            raise UserError(f"there is no format {unknown[0]!r}; choose from: {', '.join(DATA_FORMATS)}")
        files.check_all({"--picture": self.picture})
        if not self.workers:
            raise UserError("--workers is empty; give numbers of reading threads, such as 0 1")
        written = {name: formats.written_as(name) for name in names_in(self.formats) if name != MEMORY}
        places = {name: self.folder.absolute() / f"{self.workload}-{name}-x{self.copies}" for name in written.values()}
        for name, place in places.items():
            writing.run(writing.Conversion(self.workload, name, place, copies=self.copies))
        folders = {name: places[written_format] for name, written_format in written.items()}
        rate, path = self.read_rate and self.read_rate * MB, self.picture and self.picture.absolute()
        with throttled(self.folder, rate, self.read_operations):
            return running.run(self.runs, partial(data_jobs, self, folders), lambda jobs, _: jobs, partial(show, path))


class Waited(NamedTuple):
    """How long a step of training waited for samples, in the mean over the ranks, and how long it took."""

    data_format: str
    num_workers: int
    num_ranks: int
    wait_seconds: float
    step_seconds: float

    @property
    def name(self):
        workers = "" if self.data_format == MEMORY else f", {self.num_workers} worker{'' if self.num_workers == 1 else 's'}"
        return f"{self.data_format}{workers}, {ranks_of(self.num_ranks)}"


def data_jobs(lesson, folders, results, machine, stamp):
    """The jobs of the lesson. Formats in order have one worker at most, and one that all ranks read together has none."""
    shared = Settings(epochs=1, steps_per_epoch=lesson.steps, stop_at_target=False, step_breakdown=False, results=results, machine=machine)
    jobs = []
    for data_format in names_in(lesson.formats):
        for workers in lesson.workers if data_format != MEMORY else (0,):
            if (data_format == MEMORY and lesson.copies > 1) or workers > MAX_WORKERS.get(data_format, workers):
                continue
            drop_caches = "once" if lesson.cold else "none"
            reading = {"data_format": data_format, "num_workers": workers, "data_budget": lesson.data_budget, "drop_caches": drop_caches}
            settings = Settings(**vars(shared) | ({} if data_format == MEMORY else reading | {"data_dir": folders[data_format]}))
            planned = plan([lesson.backend], [lesson.workload], lesson.ranks, 1, None, settings)
            jobs += stamped(planned, f"{stamp}-{data_format}-w{workers}")
    if not jobs:
        raise UserError("there is nothing to run; give formats on disk, or --copies 1")
    return jobs


def waited_of(record):
    """The Waited of a completed record; data in memory is taken not to be waited for."""
    settings, reading = record.settings, record.reading
    wait = 0.0 if reading is None else float(np.mean(reading.wait_seconds_by_rank)) / reading.num_steps
    step = sum(record.train_seconds) / len(record.step_seconds)
    return Waited(settings.data_format, settings.num_workers, record.num_ranks, wait, step)


def bars(waits):
    """The lines of a picture: the share of a step that it waited, of each Waited."""
    shares = {waited.name: waited.wait_seconds / waited.step_seconds for waited in waits}
    largest, width = max(shares.values()) or 1.0, max(map(len, shares))
    return [f"{name:<{width}} | {'#' * round(BAR_WIDTH * share / largest)} {100 * share:.1f} %" for name, share in shares.items()]


def picture(waits):
    """How long the steps of each Waited wait for samples, as SVG: a bar of the waiting and of the rest of the step."""
    rows = [
        {"run": waited.name, "part": part, "ms": 1000 * seconds}
        for waited in waits
        for part, seconds in zip(PARTS, (waited.wait_seconds, waited.step_seconds - waited.wait_seconds), strict=True)
    ]
    labels = vega_lite.labels([waited.name for waited in waits])
    stacked = vega_lite.stacked_bars(rows, vega_lite.quantity("ms", "step (ms)"), "run", "part", PARTS, **labels)
    return vega_lite.svg({"width": vega_lite.WIDTH, "height": BAR_HEIGHT * len(waits), **stacked})


def conclusion(waits):
    """What the Waiteds show, as sentences, and no more."""
    from_disk = [waited for waited in waits if waited.data_format != MEMORY]
    if not from_disk:
        return ["nothing to compare: no run has read from disk"]
    longest, shortest = (pick(from_disk, key=lambda waited: waited.wait_seconds / waited.step_seconds) for pick in (max, min))
    sentences = [f"Training waits longest for {_described(longest)}, and least for {_described(shortest)}."]
    pairs = [
        (without, workers)
        for without in from_disk
        for workers in from_disk
        if (without.data_format, without.num_ranks) == (workers.data_format, workers.num_ranks)
        and without.num_workers == 0 < workers.num_workers
    ]
    if pairs:
        num_shorter = sum(workers.wait_seconds < without.wait_seconds for without, workers in pairs)
        num_faster = sum(workers.step_seconds < without.step_seconds for without, workers in pairs)
        reason = "" if num_faster == len(pairs) else ": what they do takes time of the rank's cores"
        sentences.append(f"Workers make the wait shorter in {num_shorter} of {len(pairs)} cases, and the step in {num_faster}{reason}.")
    return sentences


def _described(waited):
    return f"{waited.name}: {1000 * waited.wait_seconds:.2f} ms of a step of {1000 * waited.step_seconds:.1f} ms"


def show(path, runs):
    """Prints the tables, the bars and the sentences, and writes the picture to a path, if any."""
    completed = [record for record in runs if record.status == "ok"]
    waits = sorted(map(waited_of, completed), key=lambda waited: (waited.num_ranks, waited.name))
    sentences, tables = reading.answer(entries.comparisons(completed))
    lines = ["share of a step in which it waits for samples:", *bars(waits), *sentences, *conclusion(waits)] if waits else []
    terminal.show_result(tables, lines)
    if path and waits:
        files.write(path, picture(waits))
