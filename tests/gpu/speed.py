"""Speed: backends, workloads and precisions, ours beside a minimal loop of PyTorch, in an order in which the last ones may be left out."""

import functools
import json
import sys
import typing

from common.config import Settings
from common.workloads import WORKLOADS
from tests.gpu import data
from tests.gpu.checking import Skipped, Todo, once
from tests.gpu.running import run, train

SHARE = 1.0
BACKENDS = ("single", "ddp", "fsdp", "deepspeed_zero", "horovod_torch")
PRECISIONS = ("bf16", "tf32", "fp32")
# Of each workload on a GPU the batch size; and small ones for a rehearsal without.
ON_GPU = {"transformer-gpt2": 16, "resnet50": 128, "transformer-base": 64}
ON_CPU = {"transformer": 8, "cnn": 16}
NUM_STEPS = {True: 20, False: 4}
# The first epoch is not counted. A data set of random images has few steps in an epoch.
NUM_EPOCHS, NUM_EPOCHS_OF_RANDOM = 2, 10
RUN_SECONDS, COMPILED_SECONDS = 60.0, 120.0
# Keys of a record that are shown where it has them, and their units.
SHOWN = {
    "tokens_per_second": ("tokens/s", 1), "flops_per_second_per_rank": ("TFLOP/s", 1e12), "share_of_peak": ("share of peak", 1),
    "peak_flops_per_second": ("peak TFLOP/s", 1e12),
}  # fmt: skip


def num_at_once(_):
    return 1


def todo(session):
    """What tells most comes first: bf16 of all, then single's other precisions, compiled, then the rest."""
    sizes = ON_GPU if session.on_gpu else ON_CPU
    precisions = PRECISIONS if session.on_gpu else ("fp32", "bf16")
    first, *others = precisions if session.on_gpu else precisions[:1]
    vendors = {workload: once(functools.partial(vendor, session, workload, sizes[workload], precisions)) for workload in sizes}
    wanted = [(backend, workload, first, False) for workload in sizes for backend in BACKENDS[:3]]
    wanted += [("single", workload, precision, False) for workload in sizes for precision in others]
    wanted += [("single", workload, first, True) for workload in sizes]
    wanted += [(backend, workload, first, False) for backend in BACKENDS[3:] for workload in sizes]
    wanted += [(backend, workload, precision, False) for precision in others for workload in sizes for backend in BACKENDS[1:]]
    return [
        Todo(
            f"{workload}: {backend}, {precision}{', compiled' if compiled else ''}",
            functools.partial(ours, session, backend, workload, precision, compiled, sizes[workload], vendors[workload]),
        )
        for backend, workload, precision, compiled in wanted
        if backend in session.lacks
    ]


def expect(workload, precision):
    """Raises Skipped for what this checkout does not have."""
    if workload not in WORKLOADS:
        raise Skipped(f"this checkout has no workload {workload}")
    if precision not in typing.get_args(typing.get_type_hints(Settings)["precision"]):
        raise Skipped(f"this checkout has no --precision {precision}")


def ours(session, backend, workload, precision, compiled, batch_size, of_vendor):
    """Samples per second of a run, what else its record has, and their ratio to those of the vendor's loop."""
    session.expect(backend)
    expect(workload, precision)
    num_steps = NUM_STEPS[session.on_gpu]
    own = WORKLOADS[workload]
    if "tinystories" in own.datasets:
        source, num_epochs = data.stories(session.scratch, batch_size * num_steps, own.model.context), NUM_EPOCHS
    elif "mnist" in own.datasets:
        source, num_epochs = data.digits(session.scratch, batch_size * num_steps), NUM_EPOCHS
    else:
        source, num_epochs = (), NUM_EPOCHS_OF_RANDOM
    name = f"speed-{workload}-{backend}-{precision}{'-compiled' if compiled else ''}"
    options = (
        "--workload", workload, *source, "--batch-size", batch_size, "--epochs", num_epochs, "--precision", precision,
        *(["--no-stop-at-target"] if own.target is not None else []), "--no-step-breakdown", *(["--compile"] if compiled else []),
    )  # fmt: skip
    record = train(session, backend, name, *options, seconds=COMPILED_SECONDS if compiled else RUN_SECONDS)
    rate = record["samples_per_epoch"] * (num_epochs - 1) / sum(record["train_seconds"][1:])
    found = {"samples/s": rate}
    found |= {label: record[key] / unit for key, (label, unit) in SHOWN.items() if record.get(key)}
    if memory := record["gpu_memory_by_rank"]:
        found["peak allocated (GiB)"] = memory["peak_allocated_bytes"][0] / 2**30
    if not compiled:
        vendors = of_vendor().get(precision)
        found |= {"vendor's samples/s": vendors, "ratio": rate / vendors} if vendors else {}
    return found


def vendor(session, workload, batch_size, precisions):
    """{precision: samples per second} of the minimal loop; empty where it fails."""
    loop = [sys.executable, "-m", "tests.gpu.vendor_loop", session.device, workload, batch_size, NUM_STEPS[session.on_gpu], *precisions]
    try:
        status, printed = run(session, f"speed-{workload}-vendor", loop, RUN_SECONDS)
    except AssertionError:
        return {}
    return json.loads(printed.splitlines()[-1]) if status == 0 else {}
