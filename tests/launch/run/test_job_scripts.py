"""The script that submits a matrix size by size: what each job asks for, runs and waits for, for Slurm and for PBS."""

import re
import shlex

import pytest

from common.config import Settings
from launch.launchers.batch_systems import JOB_SYNTAXES, JobSyntax
from launch.launchers.machine_files import Machine, Queue
from launch.run import job_scripts
from launch.run.options import Matrix, RunSettings
from launch.run.plan import plan
from tests.support.forked import run_module
from tests.support.mistakes import refused
from tests.support.running import BIN, ROOT, completed

NAMES = ["single", "ddp"]
PLAIN = Machine()
FOLDER = "/it's here"


@pytest.fixture(autouse=True)
def _without_modules(monkeypatch):
    """A set-up that noted nothing."""
    monkeypatch.setattr(job_scripts, "SETUP_FILES", ())


def printed(tmp_path, system, sizes=(1, 2, 8), machine=PLAIN, device=None, cores_per_rank=None, **options):
    """The texts of the jobs of a matrix, after shellcheck has read each of them and the script around them."""
    matrix = Matrix(sizes=sizes, backends=",".join(NAMES), run=RunSettings(device=device, cores_per_rank=cores_per_rank), **options)
    settings = Settings(device=device or "auto", cores_per_rank=cores_per_rank)
    jobs = plan(NAMES, ["cnn"], sizes, matrix.repeats, matrix.ranks_per_node, settings)
    text = job_scripts.text(system, matrix, jobs, machine, FOLDER)
    scripts = [script for _, script in re.findall(r"<<'(\w+)'\n(.*?)\n\1\n", text, re.DOTALL)]
    paths = [tmp_path / f"{number}.sh" for number in range(1 + len(scripts))]
    for path, script in zip(paths, [text, *scripts], strict=True):
        path.write_text(script + "\n")
    done = completed(BIN / "shellcheck", "--shell=bash", *paths)
    assert (done.returncode, done.stdout) == (0, "")
    return text, scripts


PERLMUTTER = Machine(gpu_request="gpus-per-node", queue_option="--qos", queues={"debug": Queue(minutes=30)})
ON_TWO_NODES = {"ranks_per_node": 4, "cores_per_rank": 3}
OF_GPUS = {"sizes": (4,), "device": "cuda", "repeats": 9}


@pytest.mark.parametrize(
    ("system", "machine", "options", "expected"),
    [
        (
            "slurm",
            PLAIN,
            ON_TWO_NODES,
            "--nodes=2 --ntasks-per-node=4 --cpus-per-task=3 --threads-per-core=1 --time=00:30:00 --requeue --exclusive",
        ),
        ("pbs", PLAIN, ON_TWO_NODES, "-l select=2:ncpus=12:mpiprocs=4, -l walltime=00:30:00, -r y"),
        ("pbs", PLAIN, {"device": "cuda"}, "-l select=1:ncpus=8:mpiprocs=8:ngpus=8, -l place=scatter:excl"),
        ("slurm", PLAIN, OF_GPUS, "--nodes=1 --ntasks-per-node=4 --time=01:00:00 --gres=gpu:4"),
        ("slurm", PLAIN, OF_GPUS | {"queue": "dev"}, "--time=01:00:00 --partition=dev"),
        ("slurm", PERLMUTTER, OF_GPUS | {"queue": "debug"}, "--time=00:30:00 --qos=debug --gpus-per-node=4"),
        ("slurm", PERLMUTTER, OF_GPUS | {"queue": "regular"}, "--time=01:00:00 --qos=regular"),
        ("pbs", Machine(queues={"short": Queue(minutes=20)}), {"queue": "short"}, "-q short, -l walltime=00:20:00"),
        # A run of at most 15 minutes, and of at most one.
        ("pbs", PLAIN, {"queue": "debug"}, "-q debug, -l walltime=00:30:00"),
        ("slurm", PLAIN, {"time_limit": 60.0}, "--time=00:20:00"),
    ],
)
def test_a_job_asks_for_the_resources_of_its_runs_and_not_for_more_time_than_its_queue_allows(system, machine, options, expected, tmp_path):
    _, scripts = printed(tmp_path, system, machine=machine, **options)
    directives = re.findall(r"^#[A-Z]+ (.*)$", scripts[-1], re.MULTILINE)
    assert [line for line in expected.split(" " if system == "slurm" else ", ") if line not in directives] == []
    assert ("gpu" in "".join(directives)) == ("device" in options)


@pytest.mark.parametrize(
    ("system", "after"), [("slurm", '"--dependency=afterany:${previous%%;*}"'), ("pbs", '-W "depend=afterany:$previous"')]
)
def test_each_job_is_of_one_size_and_waits_for_the_end_of_the_one_before(system, after, tmp_path):
    text, scripts = printed(tmp_path, system, sizes=(8, 2), launcher_args="--comment 'two words'", workloads="cnn", repeats=2)
    commands = [shlex.split(re.search(r"^exec (.*)$", script, re.MULTILINE)[1]) for script in scripts]
    further = ["--workloads", "cnn", "--repeats", "2", "--launcher-args=--comment 'two words'", "--resume"]
    # What runs in one process has a job too.
    sizes_and_backends = [("1", "single"), ("2", "single,ddp"), ("8", "single,ddp")]
    program = str(ROOT / "launch" / "matrix.sh")
    assert commands == [[program, num_ranks, "--backends", names, *further] for num_ranks, names in sizes_and_backends]
    assert [shlex.split(re.search(r"^cd (.*)$", script, re.MULTILINE)[1]) for script in scripts] == [[FOLDER]] * 3
    assert [after in line for line in re.findall(r"^submit .*$", text, re.MULTILINE)] == [False, True, True]


LOADED = {
    "MODULEPATH": "/own modules:/site",
    "LOADEDMODULES": "craype/2.7:gcc-native/13.2",
    "CONDA_PREFIX": "/opt/my conda",
    "VIRTUAL_ENV": "/home/me/venv",
}
LINES = """
# Loaded when launch/setup.sh ran:
export MODULEPATH='/own modules:/site'
for module in craype/2.7 gcc-native/13.2; do
  module load "$module"
  [[ ":${LOADEDMODULES-}:" == *":$module:"* ]] || { echo "error: module load $module has failed" >&2; exit 1; }
done
export CONDA_PREFIX='/opt/my conda' PATH='/opt/my conda/bin':$PATH
export VIRTUAL_ENV=/home/me/venv PATH=/home/me/venv/bin:$PATH
"""
PROLOGUE = "module load torch\nexport A=b"


@pytest.mark.parametrize(
    ("loaded", "prologue", "lines"),
    [
        ({}, "", "\n# module load …\n"),
        ({"LOADEDMODULES": ""}, "", "\n# module load …\n"),
        ({}, f"{PROLOGUE}\n", f"\n{{ {PROLOGUE}\n}} || exit\n"),
        (LOADED, "", LINES),
        (LOADED, PROLOGUE, f"{LINES}{{ {PROLOGUE}\n}} || exit\n"),
    ],
)
def test_a_job_loads_what_the_set_up_had_loaded_and_then_the_prologue_of_the_machine(loaded, prologue, lines, tmp_path, monkeypatch):
    monkeypatch.setattr(job_scripts, "noted_at_setup", lambda _: loaded)
    _, scripts = printed(tmp_path, "slurm", machine=Machine(prologue=prologue))
    assert [f"{lines}set -euo" in script for script in scripts] == [True] * 3


# That of a site, where the environment modules of 2012 return 0 for a module that is not there.
MODULE = 'module() { [ "$MODULEPATH $2" = "/own gone/1" ] || LOADEDMODULES=${LOADEDMODULES-}:$2; }'


@pytest.mark.parametrize(
    ("path", "printed"), [("/own", (1, "", "error: module load gone/1 has failed\n")), ("/other", (0, ":gcc/13:gone/1\n", ""))]
)
def test_a_module_that_is_not_there_ends_the_job_with_its_name(path, printed):
    lines = job_scripts.prologue_of({"MODULEPATH": path, "LOADEDMODULES": "gcc/13:gone/1"})
    done = completed("bash", "-c", f'unset LOADEDMODULES\n{MODULE}\n{lines}\necho "$LOADEDMODULES"')
    assert (done.returncode, done.stdout, done.stderr) == printed


def test_what_the_set_up_noted_is_that_of_the_environment_before_that_of_a_sites_python(tmp_path):
    files = (tmp_path / "venv", tmp_path / "light")
    assert job_scripts.noted_at_setup(files) == {}
    files[1].write_text("VIRTUAL_ENV=/x=y\n")
    assert job_scripts.noted_at_setup(files) == {"VIRTUAL_ENV": "/x=y"}
    files[0].write_text("LOADEDMODULES=a:b\n")
    assert job_scripts.noted_at_setup(files) == {"LOADEDMODULES": "a:b"}


# It prints for the job `number` what `output` says.
SUBMIT = """#!/bin/bash
cat >/dev/null
number=$(($(cat {folder}/number 2>/dev/null || echo 100) + 1))
echo "$@" >>{folder}/arguments
{output}
echo $number >{folder}/number
"""
GREETING = "printf '%s\\n' 'Welcome to Example 3' 2026 '--> valid job name... OK'; "


def submitted(tmp_path, system, output):
    """Returns (the finished script of 3 jobs, arguments of each submission), with a batch system that prints this."""
    text, _ = printed(tmp_path, system)
    program = tmp_path / JOB_SYNTAXES[system].submit.split()[0]
    program.write_text(SUBMIT.format(folder=tmp_path, output=output))
    program.chmod(0o755)
    (tmp_path / "submit.sh").write_text(text)
    done = completed("bash", tmp_path / "submit.sh", "-A", "x y", variables={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    return done, (tmp_path / "arguments").read_text().splitlines()


@pytest.mark.parametrize(
    ("system", "output", "after"),
    [
        ("slurm", "echo $number", "--dependency=afterany:{}"),
        ("slurm", GREETING + "echo $number", "--dependency=afterany:{}"),
        ("slurm", GREETING + 'echo "$number;cluster"; echo bye', "--dependency=afterany:{}"),
        ("slurm", "echo Submitted batch job $number", "--dependency=afterany:{}"),
        ("slurm", "printf ' %s \\r\\n' $number", "--dependency=afterany:{}"),
        ("pbs", GREETING + "echo $number.server-1.site", "-W depend=afterany:{}.server-1.site"),
        ("pbs", 'echo "$number[].server"', "-W depend=afterany:{}[].server"),
    ],
)
def test_the_number_of_a_job_is_the_last_line_that_looks_like_one(system, output, after, tmp_path):
    done, arguments = submitted(tmp_path, system, output)
    expected = [" ".join([*([after.format(number)] if number > 100 else []), "-A x y"]) for number in (100, 101, 102)]
    assert (done.returncode, [line.removeprefix("--parsable ") for line in arguments]) == (0, expected), done.stderr


def test_a_batch_system_is_a_row(monkeypatch, tmp_path):
    """LSF's, which says more than a number and counts hours and minutes."""
    row = JobSyntax(
        "#BSUB -J tandem-{sizes}\n#BSUB -nnodes {num_nodes}\n#BSUB -W {hours}:{minutes:02d}{queue}", gpus="", queue="\n#BSUB -q {name}",
        submit="bsub", number="Job <[0-9]+", after='-w "ended(${previous#*<})"',
    )  # fmt: skip
    monkeypatch.setitem(JOB_SYNTAXES, "lsf", row)
    done, arguments = submitted(tmp_path, "lsf", GREETING + 'echo "Job <$number> is submitted to default queue <normal 2>."')
    assert (done.returncode, arguments) == (0, ["-A x y", "-w ended(101) -A x y", "-w ended(102) -A x y"]), done.stderr
    _, (script, *_) = printed(tmp_path, "lsf", queue="normal")
    assert script.splitlines()[1:5] == ["#BSUB -J tandem-1", "#BSUB -nnodes 1", "#BSUB -W 0:40", "#BSUB -q normal"]


@pytest.mark.parametrize(
    ("output", "message"),
    [("[ $number = 102 ] && { echo no more >&2; exit 3; }; echo $number", "no more"), ("echo hello", "sbatch printed no number of a job")],
)
def test_a_job_that_is_not_submitted_ends_the_script(output, message, tmp_path):
    done, arguments = submitted(tmp_path, "slurm", output)
    assert done.returncode != 0
    assert message in done.stderr
    assert len(arguments) == (2 if message == "no more" else 1)


@pytest.mark.parametrize(
    ("system", "nodes"), [("slurm", "--nodes=2\n#SBATCH --ntasks-per-node=4"), ("pbs", "-l select=2:ncpus=4:mpiprocs=4")]
)
def test_one_job_runs_all_sizes_on_the_nodes_of_the_largest(system, nodes, tmp_path):
    text, (script,) = printed(tmp_path, system, sizes=(8, 2), one_job=True, ranks_per_node=4)
    assert nodes in script
    command = shlex.split(re.search(r"^exec (.*)$", script, re.MULTILINE)[1])
    assert command[1:] == ["8", "2", "--backends", "single,ddp", "--ranks-per-node", "4", "--resume"]
    assert '\necho "1 rank, 2 ranks, 8 ranks: $previous"\n' in text


OF_TWO_NODES = Machine(launcher="pals", queues={"debug": Queue(nodes=2)})


@pytest.mark.parametrize(
    ("system", "machine", "options", "message"),
    [
        ("slurm", PLAIN, {"queue": "a b"}, "--queue is 'a b'"),
        ("slurm", OF_TWO_NODES, {}, "--print-jobs is slurm, and the machine file's launcher, pals, starts ranks under pbs"),
        ("pbs", Machine(launcher="srun"), {}, "srun, starts ranks under slurm; give --print-jobs slurm"),
        ("pbs", OF_TWO_NODES, {"queue": "debug", "ranks_per_node": 2}, "4 nodes are planned, and a job in debug has 2 at most; give"),
    ],
)
def test_jobs_that_the_batch_system_would_not_take_are_refused(system, machine, options, message, tmp_path):
    with refused(message):
        printed(tmp_path, system, machine=machine, **options)
    printed(tmp_path, "pbs", machine=OF_TWO_NODES, queue="debug", ranks_per_node=4)


def test_what_would_fail_in_the_job_is_refused_before_the_queue():
    arguments = ("2", "--backends", "ddp", "--workloads", "cnn", "--batch-size", "1000000", "--print-jobs", "slurm")
    status, printed, error = run_module("launch.matrix", *arguments)
    assert (status, printed, error.count("\n")) == (2, "", 1), error
