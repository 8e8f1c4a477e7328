"""The script that submits a matrix size by size: what each job asks for, runs and waits for, for Slurm and for PBS."""

import re
import shlex

import pytest

from common.config import Settings
from launch.matrix import Matrix, RunSettings
from launch.run import job_scripts
from launch.run.plan import plan
from tests.support import made_records
from tests.support.running import BIN, ROOT, completed

NAMES = ["single", "ddp"]
FOLDER = "/it's here"


def printed(tmp_path, system, sizes=(1, 2, 8), prologue="", earlier=(), device="auto", cores_per_rank=None, **options):
    """The texts of the jobs of a matrix, after shellcheck has read each of them and the script around them."""
    matrix = Matrix(sizes=sizes, backends=",".join(NAMES), run=RunSettings(device=device, cores_per_rank=cores_per_rank), **options)
    settings = Settings(device=device, cores_per_rank=cores_per_rank)
    jobs = plan(NAMES, ["cnn"], sizes, matrix.repeats, matrix.ranks_per_node, settings)
    text = job_scripts.text(system, matrix, jobs, prologue, earlier, FOLDER)
    scripts = re.findall(r"<<'END_OF_JOB'\n(.*?)\nEND_OF_JOB\n", text, re.DOTALL)
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
            ["--nodes=2", "--ntasks-per-node=4", "--cpus-per-task=3", "--time=01:00:00", "--requeue", "--exclusive"],
        ),
        ("slurm", {"device": "cuda"}, ["--nodes=1", "--ntasks-per-node=8", "--gres=gpu:8"]),
        ("pbs", {"ranks_per_node": 4, "cores_per_rank": 3}, ["-l select=2:ncpus=12:mpiprocs=4", "-l walltime=01:00:00", "-r y"]),
        ("pbs", {"device": "cuda"}, ["-l select=1:ncpus=8:mpiprocs=8:ngpus=8", "-l place=scatter:excl"]),
    ],
)
def test_a_job_asks_for_the_nodes_ranks_and_gpus_of_the_plan_and_is_requeued(system, options, expected, tmp_path):
    _, scripts = printed(tmp_path, system, **options)
    directives = re.findall(r"^#(?:SBATCH|PBS) (.*)$", scripts[-1], re.MULTILINE)
    assert [line for line in expected if line not in directives] == []
    assert ("gpu" in "".join(directives)) == ("device" in options)


@pytest.mark.parametrize(
    ("system", "after"), [("slurm", '--dependency="afterany:${previous%%;*}"'), ("pbs", '-W depend="afterany:$previous"')]
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
    assert [after in line for line in re.findall(r"^previous=.*$", text, re.MULTILINE)] == [False, True, True]


def test_the_prologue_of_the_machine_stands_in_each_job_else_a_line_to_fill_in(tmp_path):
    assert all("\nmodule load torch\nset -euo" in script for script in printed(tmp_path, "slurm", prologue="module load torch\n")[1])
    assert all("\n# module load …\nset -euo" in script for script in printed(tmp_path, "slurm")[1])


# 500 s, of two repeats, with the 2.75 s of their starts and set-ups that the clock leaves out.
SAME = made_records.made("ddp", 2, seconds=500.0)


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        ([SAME, made_records.made("ddp", 2, seconds=100.0)], "00:40:00"),
        ([made_records.made("ddp", 4)], "01:00:00"),
        ([made_records.ended("failed", backend="ddp", num_ranks=2)], "01:00:00"),
        ([made_records.made("ddp", 2, settings={"momentum": 0.5})], "01:00:00"),
    ],
)
def test_the_time_limit_is_that_of_the_same_runs_before_else_a_default(earlier, expected, tmp_path):
    _, scripts = printed(tmp_path, "slurm", sizes=(2,), earlier=made_records.typed(earlier), repeats=2)
    assert f"#SBATCH --time={expected}" in scripts[-1]
    assert ("a default, since no earlier record has ddp on cnn" in scripts[-1]) == (SAME not in earlier)
