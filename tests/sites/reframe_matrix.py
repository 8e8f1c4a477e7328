"""A ReFrame test: a matrix runs, all of its records are right, and no backend is slower than in earlier records.

reframe -c tests/sites/reframe_matrix.py -r -P num_ranks=4,8 -S backends=ddp,horovod_torch -S reference_results=FOLDER

It needs ReFrame 4.10, in any Python: the matrix runs, and its records are compared, in the environment of this checkout.
"""

import json
import shlex
import statistics
import subprocess
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.backends import getlauncher
from reframe.core.builtins import parameter, run_after, run_before, sanity_function, variable

CHECKOUT = Path(__file__).resolve().parents[2]
# In the stage folder.
RESULTS, EXIT_STATUS = "results", "exit_status"
# What is logged of each backend, with its unit.
FIGURES = {"time_to_solution_seconds": "s", "samples_per_second": "samples/s"}


@rfm.simple_test
class TandemMatrix(rfm.RunOnlyRegressionTest):
    """One workload at one number of ranks. Further options of the matrix: `-S executable_opts=--machine-file,jsc`."""

    workload = parameter(["cnn"], type=str)
    num_ranks = parameter([2], type=int)
    # Separated by commas.
    backends = variable(str, value="ddp,deepspeed_zero,horovod_torch,horovod_tf")
    repeats = variable(int, value=6)
    # A folder of records of the same matrix, as ReFrame keeps one in its output folder.
    reference_results = variable(str, value="")

    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    sourcesdir = None
    executable = str(CHECKOUT / "launch" / "matrix.sh")
    # Not every scheduler tells ReFrame the exit status of a job.
    postrun_cmds = [f"echo $? >{EXIT_STATUS}"]
    keep_files = [RESULTS]

    @run_after("init")
    def find_the_reference(self):
        # Later, ReFrame is in the stage folder.
        self.reference_results = str(Path(self.reference_results).resolve()) if self.reference_results else ""

    @run_before("run")
    def prepare_the_job(self):
        self.num_tasks = self.num_ranks
        # A rank has cores of its own: without this Slurm may give two ranks the two hardware threads of one core.
        self.use_multithreading = False
        # The matrix starts the ranks itself.
        self.job.launcher = getlauncher("local")()
        options = [self.num_ranks, "--backends", self.backends, "--workloads", self.workload, "--repeats", self.repeats]
        options += ["--ranks-per-node", self.num_tasks_per_node] if self.num_tasks_per_node else []
        self.executable_opts = [*(shlex.quote(str(option)) for option in (*options, "--results", RESULTS)), *self.executable_opts]

    @sanity_function
    def all_runs_completed_in_sync_and_none_is_slower(self):
        path = Path(self.stagedir, EXIT_STATUS)
        status = path.read_text().strip() if path.exists() else "none, since it was killed"
        problems = [f"the matrix has exit status {status}"] if status != "0" else []
        for record in self.records():
            if record["status"] != "ok" or record["in_sync"] is not True:
                state = f"{record['error'] or record['status']}, in_sync {record['in_sync']}"
                problems.append(f"{record['backend']}, repeat {record['settings']['repeat']}: {state}")
        if self.reference_results and not problems:
            problems += self.regressions()
        return sn.assert_false(problems, msg="; ".join(problems))

    def regressions(self):
        """What launch.compare says of regressions, or of records that cannot be compared."""
        command = [python(), "-m", "launch.compare", Path(self.stagedir, RESULTS), "--baseline", self.reference_results]
        done = subprocess.run(list(map(str, command)), cwd=CHECKOUT, capture_output=True, text=True, check=False)
        return [f"launch.compare ends with {done.returncode}: {done.stderr}{done.stdout}"] if done.returncode else []

    @run_before("performance")
    def log_the_figures(self):
        for name, unit in FIGURES.items():
            values = {}
            for record in [] if self.is_dry_run() else self.records():
                if record[name] is not None:
                    values.setdefault(record["backend"], []).append(record[name])
            for backend, of_backend in values.items():
                figure = sn.make_performance_function(sn.defer(statistics.fmean(of_backend)), unit)
                self.perf_variables[f"{backend}_{name}"] = figure

    def records(self):
        """The records of the matrix."""
        return [json.loads(path.read_text()) for path in sorted(Path(self.stagedir, RESULTS).glob("*/*.json"))]


def python():
    """The Python that launch/matrix.sh uses."""
    environment = CHECKOUT / ".venv" / "bin" / "python"
    return environment if environment.exists() else CHECKOUT / ".light" / "bin" / "python"
