"""A ReFrame test: a matrix runs, all of its records are right, and no backend is slower than in earlier records.

reframe -c tests/sites/reframe_matrix.py -r -P num_ranks=4,8 -S backends=ddp,horovod_torch -S reference_results=FOLDER

It needs ReFrame 4.10, in any Python: the matrix runs, and its records are read, in the environment of this checkout. Without
`reference_results` the bounds are those of `reference`, which a site's subclass may have.
"""

import json
import shlex
import subprocess
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.backends import getlauncher
from reframe.core.builtins import parameter, run_after, run_before, sanity_function, variable
from reframe.core.exceptions import SanityError

CHECKOUT = Path(__file__).resolve().parents[2]
# In the stage folder.
RESULTS, EXIT_STATUS = "results", "exit_status"


@rfm.simple_test
class TandemMatrix(rfm.RunOnlyRegressionTest):
    """One workload at one number of ranks. Further options of the matrix: `-S executable_opts=--machine-file,jsc`."""

    workload = parameter(["cnn"], type=str)
    num_ranks = parameter([2], type=int)
    # Separated by commas.
    backends = variable(str, value="ddp,deepspeed_zero,horovod_torch,horovod_tf")
    repeats = variable(int, value=3)
    # A folder of records of the same matrix, as ReFrame keeps one in its output folder.
    reference_results = variable(str, value="")
    # A backend: bound the ratios of the others' seconds per epoch to its own, instead of the seconds.
    relative_to = variable(str, value="")
    tolerance = variable(float, value=0.15)

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
        # The matrix starts the ranks itself.
        self.job.launcher = getlauncher("local")()
        options = [self.num_ranks, "--backends", self.backends, "--workloads", self.workload, "--repeats", self.repeats]
        options += ["--ranks-per-node", self.num_tasks_per_node] if self.num_tasks_per_node else []
        self.executable_opts = [*(shlex.quote(str(option)) for option in (*options, "--results", RESULTS)), *self.executable_opts]

    @sanity_function
    def all_runs_completed_in_sync(self):
        stage = Path(self.stagedir)
        status = (stage / EXIT_STATUS).read_text().strip() if (stage / EXIT_STATUS).exists() else "none, since it was killed"
        problems = [f"the matrix has exit status {status}"] if status != "0" else []
        if (stage / RESULTS).exists():
            problems += self.read_figures()["problems"]
        return sn.assert_false(problems, msg="; ".join(problems))

    @run_before("performance")
    def compare_the_figures(self):
        bounds = {}
        figures = {} if self.is_dry_run() else self.read_figures()["figures"]
        for name, figure in figures.items():
            self.perf_variables[name] = sn.make_performance_function(sn.defer(figure["value"]), figure["unit"])
            if figure["reference"]:
                # The ratios of all other backends become smaller where the one below them is slower.
                lower = -self.tolerance if self.relative_to else None
                bounds[name] = (figure["reference"], lower, self.tolerance, figure["unit"])
        if self.reference_results:
            self.reference = {self.current_partition.fullname: bounds}

    def read_figures(self):
        """What tests/sites/figures.py prints about the records of the matrix."""
        options = ["--backends", self.backends]
        options += ["--reference", self.reference_results] if self.reference_results else []
        options += ["--relative-to", self.relative_to] if self.relative_to else []
        command = [python(), "-m", "tests.sites.figures", Path(self.stagedir, RESULTS), *options]
        done = subprocess.run(list(map(str, command)), cwd=CHECKOUT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SanityError(done.stderr.strip())
        return json.loads(done.stdout)


def python():
    """The Python that launch/matrix.sh uses."""
    environment = CHECKOUT / ".venv" / "bin" / "python"
    return environment if environment.exists() else CHECKOUT / ".light" / "bin" / "python"
