"""The script that submits a matrix size by size: what each job asks for, runs and waits for, for Slurm and for PBS."""

import re
import shlex

import pytest

from common.config import Settings
from launch.launchers.batch_systems import JOB_SYNTAXES, JobSyntax
from launch.launchers.machine_files import Machine
from launch.run import job_scripts
from launch.run.options import Matrix, RunSettings
from launch.run.plan import plan
from tests.support import made_records
from tests.support.mistakes import refused
from tests.support.running import BIN, ROOT, completed

NAMES = ["single", "ddp"]
PLAIN = Machine()
FOLDER = "/it's here"


@pytest.fixture(autouse=True)
def _without_modules(monkeypatch):
    """A set-up that noted nothing."""
    monkeypatch.setattr(job_scripts, "SETUP_FILES", ())


def printed(
    tmp_path, system, sizes=(1, 2, 8), machine=PLAIN, earlier=(), device="auto", cores_per_rank=None, with_controls=False, **options
):
    """The texts of the jobs of a matrix, after shellcheck has read each of them and the script around them."""
    matrix = Matrix(sizes=sizes, backends=",".join(NAMES), run=RunSettings(device=device, cores_per_rank=cores_per_rank), **options)
    settings = Settings(device=device, cores_per_rank=cores_per_rank)
    jobs = plan(NAMES, ["cnn"], sizes, matrix.repeats, matrix.ranks_per_node, settings, with_controls=with_controls)
    text = job_scripts.text(system, matrix, jobs, machine, earlier, FOLDER)
    scripts = [script for _, script in re.findall(r"<<'(\w+)'\n(.*?)\n\1\n", text, re.DOTALL)]
    for number, script in enumerate([text, *scripts]):
        path = tmp_path / f"{number}.sh"
        path.write_text(script + "\n")
        done = completed(BIN / "shellcheck", "--shell=bash", path)
        assert (done.returncode, done.stdout) == (0, "")
    return text, scripts


@pytest.mark.parametrize(
    ("system", "options", "expected"),
    [
        (
            "slurm",
            {"ranks_per_node": 4, "cores_per_rank": 3},
            [
                "--nodes=2",
                "--ntasks-per-node=4",
                "--cpus-per-task=3",
                "--threads-per-core=1",
                "--time=00:30:00",
                "--requeue",
                "--exclusive",
            ],
        ),
        ("slurm", {"device": "cuda"}, ["--nodes=1", "--ntasks-per-node=8", "--gres=gpu:8"]),
        ("pbs", {"ranks_per_node": 4, "cores_per_rank": 3}, ["-l select=2:ncpus=12:mpiprocs=4", "-l walltime=00:30:00", "-r y"]),
        ("pbs", {"device": "cuda"}, ["-l select=1:ncpus=8:mpiprocs=8:ngpus=8", "-l place=scatter:excl"]),
    ],
)
def test_a_job_asks_for_the_nodes_ranks_and_gpus_of_the_plan_and_is_requeued(system, options, expected, tmp_path):
    _, scripts = printed(tmp_path, system, **options)
    directives = re.findall(r"^#(?:SBATCH|PBS) (.*)$", scripts[-1], re.MULTILINE)
    assert [line for line in expected if line not in directives] == []
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


def test_the_prologue_of_the_machine_stands_in_each_job_else_a_line_to_fill_in(tmp_path):
    assert all(
        "\nmodule load torch\nset -euo" in script
        for script in printed(tmp_path, "slurm", machine=Machine(prologue="module load torch\n"))[1]
    )
    assert all("\n# module load …\nset -euo" in script for script in printed(tmp_path, "slurm")[1])


LOADED = {"LOADEDMODULES": "craype/2.7:gcc-native/13.2", "CONDA_PREFIX": "/opt/my conda", "VIRTUAL_ENV": "/home/me/venv"}


def test_a_job_loads_what_was_loaded_when_the_environment_was_set_up(tmp_path, monkeypatch):
    monkeypatch.setattr(job_scripts, "noted_at_setup", lambda _: LOADED)
    expected = (
        "\n# Loaded when launch/setup.sh ran:\nmodule load craype/2.7 gcc-native/13.2\n"
        "export CONDA_PREFIX='/opt/my conda' PATH='/opt/my conda/bin':$PATH\n"
        "export VIRTUAL_ENV=/home/me/venv PATH=/home/me/venv/bin:$PATH\nset -euo"
    )
    assert all(expected in script for script in printed(tmp_path, "slurm")[1])
    of_machine = printed(tmp_path, "slurm", machine=Machine(prologue="module load torch"))[1]
    assert all(f"{expected.removesuffix('set -euo')}module load torch\nset -euo" in script for script in of_machine)


@pytest.mark.parametrize(("variables", "lines"), [({}, ""), ({"LOADEDMODULES": ""}, ""), ({"LOADEDMODULES": "a"}, "module load a")])
def test_nothing_is_loaded_where_nothing_was(variables, lines):
    assert job_scripts.prologue_of(variables).partition("\n")[2] == lines


def test_what_the_set_up_noted_is_that_of_the_environment_before_that_of_a_sites_python(tmp_path):
    files = (tmp_path / "venv", tmp_path / "light")
    assert job_scripts.noted_at_setup(files) == {}
    files[1].write_text("VIRTUAL_ENV=/x=y\n")
    assert job_scripts.noted_at_setup(files) == {"VIRTUAL_ENV": "/x=y"}
    files[0].write_text("LOADEDMODULES=a:b\n")
    assert job_scripts.noted_at_setup(files) == {"LOADEDMODULES": "a:b"}


def test_what_ends_a_job_script_is_no_line_of_it(tmp_path):
    prologue = "module load torch\nEND_OF_JOB\ntouch on_the_login_node\nEND_OF_JOB_"
    _, scripts = printed(tmp_path, "slurm", machine=Machine(prologue=prologue))
    assert all(f"\n{prologue}\nset -euo" in script for script in scripts)


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
        submit="bsub", number="[0-9]+", after='-w "ended($previous)"', answer="Job <{number}> is submitted to .*",
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


# 500 s, of two repeats, with the 2.75 s of their starts and set-ups that the clock leaves out.
SAME = made_records.made("ddp", 2, seconds=500.0)


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        ([SAME, made_records.made("ddp", 2, seconds=100.0)], "00:40:00"),
        # Two runs of at most 15 minutes.
        ([made_records.made("ddp", 4)], "00:40:00"),
        ([made_records.ended("failed", backend="ddp", num_ranks=2)], "00:40:00"),
        ([made_records.made("ddp", 2, settings={"momentum": 0.5})], "00:40:00"),
    ],
)
def test_the_time_limit_is_that_of_the_same_runs_before_else_a_default(earlier, expected, tmp_path):
    _, scripts = printed(tmp_path, "slurm", sizes=(2,), earlier=made_records.typed(earlier), repeats=2)
    assert f"#SBATCH --time={expected}" in scripts[-1]
    assert ("a default, since no earlier record has ddp on cnn" in scripts[-1]) == (SAME not in earlier)


@pytest.mark.parametrize(("layers", "has_default"), [(None, False), (3, True)])
def test_a_model_of_another_size_has_no_time_limit_of_earlier_runs(layers, has_default):
    jobs = plan(["ddp"], ["transformer"], (2,), 1, None, Settings(layers=layers))
    matrix = Matrix(sizes=(2,), backends="ddp", workloads="transformer", run=RunSettings(layers=layers))
    earlier = made_records.typed([made_records.made("ddp", 2, workload="transformer")])
    text = job_scripts.text("slurm", matrix, jobs, PLAIN, earlier, FOLDER)
    assert ("a default, since no earlier record has ddp on transformer" in text) == has_default


PERLMUTTER = Machine(gpu_request="gpus-per-node", queue_option="--qos", queues={"debug": 30})


@pytest.mark.parametrize(
    ("system", "machine", "queue", "repeats", "expected"),
    [
        ("slurm", Machine(), None, 9, ["--time=01:00:00", "--gres=gpu:4"]),
        ("slurm", Machine(), "dev", 9, ["--time=01:00:00", "--partition=dev"]),
        ("slurm", PERLMUTTER, "debug", 9, ["--time=00:30:00", "--qos=debug", "--gpus-per-node=4"]),
        ("slurm", PERLMUTTER, "regular", 9, ["--time=01:00:00", "--qos=regular"]),
        ("slurm", PERLMUTTER, "debug", 1, ["--time=00:30:00"]),
        ("pbs", Machine(queues={"debug": 60, "short": 20}), "short", 9, ["-q short", "-l walltime=00:20:00"]),
        ("pbs", Machine(), "debug", 1, ["-q debug", "-l walltime=00:30:00"]),
    ],
)
def test_a_job_asks_for_its_queue_and_not_for_more_time_than_that_allows(system, machine, queue, repeats, expected, tmp_path):
    _, scripts = printed(tmp_path, system, (4,), machine, device="cuda", queue=queue, repeats=repeats)
    directives = re.findall(r"^#(?:SBATCH|PBS) (.*)$", scripts[-1], re.MULTILINE)
    assert [line for line in expected if line not in directives] == []
    assert ("that of the queue" in scripts[-1]) == (queue in machine.queues and repeats == 9)


@pytest.mark.parametrize(
    ("system", "nodes"), [("slurm", "--nodes=2\n#SBATCH --ntasks-per-node=4"), ("pbs", "-l select=2:ncpus=4:mpiprocs=4")]
)
def test_one_job_runs_all_sizes_on_the_nodes_of_the_largest(system, nodes, tmp_path):
    text, (script,) = printed(tmp_path, system, sizes=(8, 2), one_job=True, ranks_per_node=4)
    assert nodes in script
    command = shlex.split(re.search(r"^exec (.*)$", script, re.MULTILINE)[1])
    assert command[1:] == ["8", "2", "--backends", "single,ddp", "--ranks-per-node", "4", "--resume"]
    assert '\necho "1 rank, 2 ranks, 8 ranks: $previous"\n' in text


def test_the_name_of_a_queue_is_one_word(tmp_path):
    with refused("--queue is 'a b'"):
        printed(tmp_path, "slurm", queue="a b")


def test_the_time_limit_includes_the_controls_which_take_as_long_as_their_backend(tmp_path):
    _, scripts = printed(tmp_path, "slurm", sizes=(2,), earlier=made_records.typed([SAME]), repeats=2, with_controls=True)
    assert "1.3 times the 3016 s" in scripts[-1]
