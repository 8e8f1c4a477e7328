"""Runs a matrix: backends x workloads x sizes x repeats, those of a workload and repeat side by side, and then the table."""

import dataclasses
import functools
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from common import backends, command_line, config
from common.config import Settings
from common.declarations import ROOT, SHELL_PYTHON
from common.errors import UserError
from common.ranks import binding
from common.record import files
from common.record.definition import Record
from common.workloads import help_of_settings, located
from launch.launchers import commands, detect, machine_files
from launch.report import statistics
from launch.report.export import output_files, screen
from launch.report.ratio_text import interval
from launch.report.report import report_of
from launch.report.statistics import MIN_RUNS_CONFIDENT
from launch.run import available, best, check, job_scripts, lock, resume, runner, verify
from launch.run.options import Matrix
from launch.run.plan import Job, plan
from launch.run.session import run_all

PROGRAM = "launch/matrix.sh"
# Options with which a matrix prints something and runs nothing.
INSTEAD_OF_RUNNING = ("dry_run", "check", "print_jobs")

# Settings with the path of a file or folder.
PATHS = [name for name, kind in get_type_hints(Settings).items() if Path in (kind, *get_args(kind))]


@dataclass(frozen=True)
class Prepared:
    """A matrix as its commands take it: its jobs, its machine, and the folder of its records."""

    matrix: Matrix
    machine: machine_files.Machine
    settings: Settings
    jobs: list[Job]
    identity: dict[str, Any]
    """What it runs; a matrix with the same identity can be resumed."""
    choose: Callable[..., commands.Launcher]
    folder: Path


def run(matrix: Matrix) -> int:
    """Runs the matrix and returns the exit status. Raises UserError, before any run has begun, for what cannot work."""
    folder, prepared = Path.cwd(), prepare(matrix)
    # Runs start here, and paths of the settings begin here.
    os.chdir(ROOT)
    if matrix.check:
        return check.run(prepared.matrix, prepared.settings, prepared.jobs, prepared.choose)
    if matrix.print_jobs:
        return print_jobs(prepared, matrix.print_jobs, folder)
    return dry_run(prepared) if matrix.dry_run else start(prepared)


def prepare(matrix: Matrix) -> Prepared:
    """Reads the machine file and plans the jobs. Raises UserError for what contradicts itself."""
    if len(flags := [command_line.flag(name) for name in INSTEAD_OF_RUNNING if getattr(matrix, name)]) > 1:
        raise UserError(f"{' and '.join(flags)} each print something else; give one of them")
    if flags := [command_line.flag(name) for name in job_scripts.OF_PRINTING if not matrix.print_jobs and getattr(matrix, name)]:
        raise UserError(f"{flags[0]} is for --print-jobs, and a matrix that runs here asks no batch system")
    is_limited = matrix.verify and matrix.run.epochs is None
    matrix = verify.applied(matrix) if matrix.verify else matrix
    machine = machine_files.read(matrix.machine_file)
    settings = settings_of(matrix, machine)
    hosts = str(relative_to_root(matrix.hosts)) if matrix.hosts else None
    names, workloads = backends.chosen(matrix.backends), workloads_of(matrix)
    if is_limited:
        is_run = not any(getattr(matrix, name) for name in INSTEAD_OF_RUNNING)
        machine = verify.with_few_steps(machine, settings, workloads, is_run)
    backends.expect_had(names, settings)
    ranks_per_node = machine.ranks_per_node if matrix.ranks_per_node is None else matrix.ranks_per_node
    with_controls = matrix.controls and matrix.repeats >= MIN_RUNS_CONFIDENT
    jobs = plan(names, workloads, matrix.sizes, matrix.repeats, ranks_per_node, settings, with_controls)
    jobs = verify.with_references(jobs) if matrix.verify else jobs
    jobs = available.trainable(jobs) if matrix.backends in (None, backends.ALL) else jobs
    identity = resume.identity(names, workloads, matrix.sizes, ranks_per_node, settings)
    choose = functools.partial(detect.choose, matrix.launcher, matrix.launcher_args, machine, hosts)
    return Prepared(matrix, machine, settings, jobs, identity, choose, files.folder(settings))


def workloads_of(matrix: Matrix) -> list[str]:
    """Returns the workloads of a matrix: names in the table, and whole paths of files. Raises UserError for --workloads beside --model."""
    if matrix.run.model and matrix.workloads != Matrix.workloads:
        raise UserError("--workloads and --model each say what is trained; give one of them")
    sources = [matrix.run.model] if matrix.run.model else command_line.names_in(matrix.workloads)
    return [located(source)["model"] or source for source in sources]


def print_jobs(prepared: Prepared, system: str, folder: Path) -> int:
    """Prints the script that submits the matrix to a batch system. Its jobs run in the folder. Raises UserError for what would fail."""
    available.check(prepared.jobs, launcher=None)
    print(job_scripts.text(system, prepared.matrix, prepared.jobs, prepared.machine, folder))
    return 0


def dry_run(prepared: Prepared) -> int:
    """Prints the commands of the runs that are to be done. It asks no backend whether it can run."""
    launcher = prepared.choose(pretend=True)
    available.check(prepared.jobs, launcher)
    for job in resume.divided(resume.named(prepared.jobs, *begin(prepared, prepared.jobs)))[1]:
        print(commands.shell_command(runner.start_of(job, launcher)))
    return 0


def start(prepared: Prepared) -> int:
    """Runs the jobs of the matrix, or those of the matrix that it resumes which have not completed."""
    matrix, folder, launcher = prepared.matrix, prepared.folder, prepared.choose(pretend=False)
    files.expect_writable(folder)
    lock.expect_free(folder, prepared.jobs, matrix.share_machine)
    jobs = runnable(prepared, launcher)
    files.make_folder(folder)
    with lock.locked(folder, jobs, matrix.share_machine), resume.locked(resume.path_of(folder, prepared.identity)) as file:
        stamp, first_seed = begin(prepared, jobs)
        resume.write(file, resume.MatrixFile(prepared.identity, stamp, first_seed))
        all_jobs = resume.named(jobs, stamp, first_seed)
        resume.wait_until_ended(all_jobs)
        run_records, jobs = resume.divided(all_jobs)
        if not jobs:
            print(f"all runs of {stamp} have completed; without --resume a new matrix begins")
        page = folder / f"{stamp}.html"
        report = functools.partial(write_report, page) if not matrix.verify else lambda _: None
        status = run_all(matrix, run_records, jobs, launcher, report)
        if matrix.best:
            status = max(status, best.run(all_jobs, stamp, launcher, matrix.repeats, matrix.time_limit, gain_of))
    return verify.show(run_records) if matrix.verify else status


def write_report(page: Path, run_records: Sequence[Record]) -> None:
    """Writes the page of a matrix that has ended, and prints the answer on one screen."""
    try:
        report = report_of(run_records)
    except ModuleNotFoundError as problem:
        print(f"no report: {problem}; launch.compare reports these records in the environment of launch/setup.sh", file=sys.stderr)
        return
    output_files.write_page(page, report)
    # The sentence to paste is one line, as where the rest is.
    screen.show(report.answer, [*filter(None, [report.answer.quotation]), *links_to(page)])


def links_to(page: Path) -> list[str]:
    """Returns where the page of a matrix is, and the command that prints all of its tables."""
    tables = f"all tables: {SHELL_PYTHON} -m launch.compare {shlex.quote(str(page.with_suffix('')))}-*.json --full"
    return [f"page: {page}", tables] if page.exists() else [tables]


def gain_of(above: list[float], below: list[float]) -> tuple[float, str | None]:
    """Returns the gain of a search, by the rule of the report."""
    ratio = statistics.ratio(above, below, paired=True)
    return ratio.value, interval(ratio)


def runnable(prepared: Prepared, launcher: commands.Launcher) -> list[Job]:
    """Returns the jobs that can run, on their device. Prints the reasons why others cannot. Raises UserError if none can."""
    if ignored := binding.ignored_variables(launcher.variables):
        print(binding.describe_ignored(ignored), file=sys.stderr)
    available.check(prepared.jobs, launcher)
    jobs = available.runnable(prepared.jobs, launcher)
    available.expect_memory(jobs, launcher)
    return jobs


def begin(prepared: Prepared, jobs: list[Job]) -> tuple[str, int]:
    """Returns how the names of the runs begin, and their first seed: as in the matrix that is resumed, else as in no other matrix.

    What a user would not expect of it is printed beside the output, which a shell may run.
    """
    run, folder, identity = prepared.matrix.run, prepared.folder, prepared.identity
    matrices = resume.matrices_in(folder)
    if run.resume and (resumed := matrices.get(resume.path_of(folder, identity))):
        stamp, first_seed = resumed.stamp, resumed.first_seed
    else:
        stamp, first_seed = files.new_stamp(), resume.first_seed(jobs, records_in(folder))
        if run.resume:
            print(resume.describe_none(folder, matrices.values(), identity), file=sys.stderr)
    if run.seed is not None:
        return stamp, run.seed
    if first_seed != Settings.seed:
        print(f"first seed: {first_seed}, after those of earlier matrices; --seed {Settings.seed} repeats these", file=sys.stderr)
    return stamp, first_seed


def records_in(folder: Path) -> list[Record]:
    """Reads the records in a folder, if there is one. Prints the files that are no records."""
    present, damaged = files.collect([folder]) if folder.exists() else ([], [])
    files.report_damaged(damaged)
    return present


def not_for_a_matrix() -> dict[str, str]:
    """Returns the settings that a matrix does not take, each with the message about that."""
    selecting = {name: ", ".join(backends.variants_by(name)) for name in backends.variant_settings()}
    return config.not_for(config.MATRIX) | {
        name: f"is for a single run; here write one of {variants} in --backends" for name, variants in selecting.items()
    }


def settings_of(matrix: Matrix, machine: machine_files.Machine) -> Settings:
    """Returns the settings that all runs share, the machine's for those that no option gives.

    Their paths are relative to the top folder of the checkout, where runs start.
    """
    defaults = vars(Settings()) | vars(machine)
    values = {name: defaults[name] if value is None else value for name, value in vars(matrix.run).items()}
    # It is the matrix that is resumed, not its runs, and each run has the file of its workload.
    values |= {"resume": False, "model": None}
    settings = Settings(**values)
    config.check(settings)
    paths: dict[str, Path | str] = {name: relative_to_root(path) for name in PATHS if (path := getattr(settings, name))}
    if settings.trace and settings.trace != config.TRACE_MPI:
        paths["trace"] = str(Path(settings.trace).absolute())
    # Compute nodes of one machine all have other host names, its file has one.
    has_file = matrix.run.machine is None and matrix.machine_file != Matrix.machine_file
    name = Path(matrix.machine_file).stem if has_file else files.machine_name(matrix.run.machine)
    return dataclasses.replace(settings, **paths, machine=name)


def relative_to_root(path: Path) -> Path:
    """Returns the path relative to the checkout, where runs start, if it lies inside; an absolute path elsewhere."""
    path = path.absolute()
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


if __name__ == "__main__":
    description = "Trains every workload with every backend at every size, and compares them in one table."
    command_line.main(run, Matrix, PROGRAM, description, not_for_a_matrix(), help_of_settings())
