"""Synthetic records for tests: JSON objects, complete and valid, with the changes that a test needs."""

import json

from common import workloads
from common.config import Settings
from common.cost import parallelism
from common.ranks.launcher_variables import Ranks
from common.record import definition, files
from common.record.parts import Environment

ENVIRONMENT = {
    "python": "3.11.7", "packages": {"torch": "2.13.0"}, "mpi": None, "host": "here", "os": "Linux", "cpu": "a processor",
    "processor": None, "instruction_sets": ["avx2", "fma"], "num_cores": 4, "cores_by_rank": None,
    "quota_cores": None, "device": None, "gpu": None, 
    "memory_bytes": 2**34, "git_commit": "0" * 40, "git_changed": False, "variables": {},
    "ignored_variables": None,
}  # fmt: skip
DIGEST = "d" * 64


def made(
    backend="ddp", num_ranks=1, repeat=0, seconds=10.0, accuracy=0.98, settings=None, stamp="20260101-000000", workload="cnn", **changes
):
    """The record of a run that reached its target after `seconds`, in 2 epochs with 4 steps in all."""
    scaling = changes.get("scaling", "weak")
    run_id = f"{stamp}-{workload}-{backend}-n{num_ranks}-r{repeat}"
    chosen = Settings(workload=workload, scaling=scaling, seed=1 + repeat, repeat=repeat, run_id=run_id, machine="here", **(settings or {}))
    launch = {"launcher": "mpich", "command": f"mpiexec -n {num_ranks} python", "launched_at": None}
    resolved = workloads.resolve(chosen, num_ranks)
    plan = workloads.batch_plan(resolved, parallelism.degree(backend, resolved, num_ranks))
    record = files.as_json(definition.new(backend, resolved, Ranks(size=num_ranks), plan, launch, Environment(**ENVIRONMENT)))
    reached = {
        "reached": True, "time_to_solution_seconds": seconds, "accuracy": accuracy,
        "accuracies": [accuracy / 2, accuracy], "eval_losses": [1.0, 0.5], "eval_seconds": [0.5, 0.5],
    }  # fmt: skip
    return valid(
        record
        | {
            "started_at": f"2026-01-01T00:{repeat:02d}:00Z",
            "status": "ok", "workload_digest": DIGEST, "num_nodes": 1, "in_sync": True, "oversubscribed": False,
            "samples_per_second": 1000 / seconds, "launch_seconds": 0.25, "import_seconds": 1.0, "init_seconds": 2.0, "load_seconds": 0.5,
            "samples_per_epoch": 64, "samples_dropped_per_epoch": 1,
            "losses": [3.0, 2.0, 1.0, 0.5], "learning_rates": [0.01] * 4, "step_seconds": [seconds / 5] * 4,
            "train_seconds": [seconds / 2 - 1] * 2, "parameter_digests": ["a" * 64, "b" * 64, "c" * 64],
            "peak_memory_bytes": 300 * 2**20, "peak_memory_bytes_by_rank": [300 * 2**20] * num_ranks,
        }
        | (reached if record["target"] else {})
        | changes
    )  # fmt: skip


def valid(record):
    """The record itself. Raises ValueError if it is none, since the report would not read it."""
    files.parsed(json.dumps(record))
    return record


def typed(made_records):
    """The Records of JSON objects, as the report reads them."""
    return [files.parsed(json.dumps(values)) for values in made_records]


def step_breakdown(compute=6.0, exposed=3.0, num_ranks=2):
    """The step breakdown of ranks with these milliseconds a step and 1 ms of data wait; half of the communication is overlapped."""
    parts = {"data_wait_seconds": 1.0, "compute_seconds": compute, "communication_exposed_seconds": exposed}
    parts |= {"step_seconds": sum(parts.values()), "communication_seconds": 2 * exposed}
    return {
        "num_steps": 10, **{name: [milliseconds / 1000] * num_ranks for name, milliseconds in parts.items()},
        "operations": {"all_reduce": {"num_calls": 2.0, "num_bytes": 4e6}, "all_gather": {"num_calls": 1.0, "num_bytes": 1e6}},
        "bus_bytes_per_second": 5e8,
    }  # fmt: skip


def tensor_bytes(*by_rank):
    """What ranks hold after the backward pass, of (parameters, gradients, optimizer state) by rank; gradients at no other point."""
    parameters, gradients, state = ([bytes_of_rank[part] for bytes_of_rank in by_rank] for part in range(3))
    without_gradients = {"parameters": parameters, "gradients": [0] * len(by_rank), "optimizer_state": state}
    return {
        "after_forward": without_gradients,
        "after_backward": without_gradients | {"gradients": gradients},
        "after_step": without_gradients,
    }


def not_reached(**changes):
    return made(**{"reached": False, "time_to_solution_seconds": None, "accuracy": 0.9} | changes)


def ended(status, **changes):
    """The record of a run that has not completed (`status`: diverged, failed, timeout or started) and has no results."""
    unknown = (
        "reached", "time_to_solution_seconds", "accuracy", "samples_per_second", "peak_memory_bytes", "peak_memory_bytes_by_rank",
        "oversubscribed", "in_sync", "workload_digest", "import_seconds", "init_seconds", "load_seconds",
    )  # fmt: skip
    lists = ("losses", "learning_rates", "step_seconds", "train_seconds", "eval_seconds", "accuracies", "eval_losses", "parameter_digests")
    error = None if status == "started" else "it broke"
    return valid(made(**changes) | dict.fromkeys(unknown) | {key: [] for key in lists} | {"status": status, "error": error})


def repeats(seconds, **changes):
    """One record for each time to solution; None: the target was not reached. Records of several calls are interleaved in time."""
    return [
        made(repeat=repeat, seconds=time, **changes) if time is not None else not_reached(repeat=repeat, **changes)
        for repeat, time in enumerate(seconds)
    ]  # fmt: skip


def on(machine, made_records, **environment):
    """The same records as those of another machine, with changes of their environment."""
    return [
        record | {"settings": record["settings"] | {"machine": machine}, "environment": record["environment"] | environment}
        for record in made_records
    ]  # fmt: skip


def noisy(products, copies=(100.0, 100.0), **changes):
    """A record with these speeds of the machine before and after the run."""
    return made(**changes) | {"machine_noise": {"product_flops_per_second": list(products), "copy_bytes_per_second": list(copies)}}
