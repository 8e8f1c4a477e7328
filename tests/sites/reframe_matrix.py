"""A small matrix as a test of ReFrame 4.10, on a site's own systems: reframe -C CONFIGURATION -c tests/sites/reframe_matrix.py -r

Performance variables, of each backend and number of ranks: BACKEND_RANKS_epoch_seconds, BACKEND_RANKS_ratio (to the first backend at this
size, with which it took turns) and BACKEND_RANKS_speed_up (over the smallest size). -S reference_file=/path/of/references.yaml gives
references in ReFrame's form, such as `TandemMatrix: {"site:gpu": {ddp_2_ratio: [1.02, null, 0.1, times]}}`.
"""

import json
import math
import shlex
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.backends import getlauncher
from reframe.core.builtins import run_after, run_before, sanity_function, variable


@rfm.simple_test
class TandemMatrix(rfm.RunOnlyRegressionTest):
    backends = variable(str, value="ddp,horovod_torch")
    sizes = variable(str, value="1,2")
    nodes = variable(int, value=1)
    repeats = variable(int, value=3)
    options = variable(str, value="--workloads cnn --epochs 4 --no-stop-at-target --no-step-breakdown")
    reference_file = variable(str, value="")
    valid_systems = ["*"]  # noqa: RUF012
    valid_prog_environs = ["*"]  # noqa: RUF012
    sourcesdir = None
    keep_files = ["results"]  # noqa: RUF012
    executable = str(Path(__file__).resolve().parents[2] / "launch" / "matrix.sh")
    exclusive_access = True
    time_limit = "1h"

    @run_after("init")
    def describe(self):
        self.ranks = sorted(int(size) for size in self.sizes.split(","))
        self.num_tasks = self.ranks[-1]
        self.num_tasks_per_node = -(-self.num_tasks // self.nodes)
        axes = [*map(str, self.ranks), "--backends", self.backends, "--repeats", str(self.repeats)]
        fixed = ["--ranks-per-node", str(self.num_tasks_per_node), "--results", "results", "--machine", "here"]
        self.executable_opts = list(map(shlex.quote, [*axes, *shlex.split(self.options), *fixed]))
        if self.reference_file:
            self.reference = {"$ref": self.reference_file}

    @run_before("run")
    def leave_launching_to_the_matrix(self):
        self.job.launcher = getlauncher("local")()

    @sanity_function
    def all_runs_are_completed(self):
        missing = [cell for cell in self.cells() if len(self.epoch_seconds(*cell)) != self.repeats]
        return sn.assert_false(missing, msg=f"without {self.repeats} completed runs: {missing}")

    @run_before("performance")
    def read_performance(self):
        first = self.backends.split(",")[0]
        for backend, num_ranks in self.cells():
            seconds = self.mean(backend, num_ranks)
            values = {"epoch_seconds": (seconds, "s"), "ratio": (seconds / self.mean(first, num_ranks), "times")}
            values["speed_up"] = self.mean(backend, self.ranks[0]) / seconds, "times"
            for name, (value, unit) in values.items():
                self.perf_variables[f"{backend}_{num_ranks}_{name}"] = sn.make_performance_function(sn.defer(value), unit)

    def cells(self):
        return [(backend, num_ranks) for backend in self.backends.split(",") for num_ranks in self.ranks]

    def mean(self, *cell):
        """The geometric mean of the seconds per epoch of the repeats."""
        seconds = self.epoch_seconds(*cell)
        return math.exp(sum(map(math.log, seconds)) / len(seconds))

    def epoch_seconds(self, *cell):
        """The seconds per epoch, training and evaluation, of each completed run of a backend and number of ranks."""
        records = [json.loads(path.read_text()) for path in Path(self.stagedir, "results", "here").glob("*.json")]
        return [
            (sum(record["train_seconds"]) + sum(record["eval_seconds"])) / len(record["train_seconds"])
            for record in records
            if (record["backend"], record["num_ranks"], record["status"]) == (*cell, "ok")
        ]
