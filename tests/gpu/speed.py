"""Speed: backends, workloads and precisions, in an order in which the last ones may be left out."""

from typing import NamedTuple

from common.workloads import WORKLOADS
from tests.gpu.plugin import SESSION
from tests.gpu.running import train

SHARE = 1.0
BACKENDS = ("single", "ddp", "fsdp", "deepspeed_zero", "horovod_torch")
PRECISIONS = ("bf16", "tf32", "fp32")
ON_CPU_PRECISIONS = ("fp32", "bf16")
# Of each workload on a GPU the batch size; and small ones for a rehearsal without.
ON_GPU = {"transformer-gpt2": 16, "resnet50": 128, "transformer-base": 64}
ON_CPU = {"transformer": 8, "cnn": 16}
NUM_STEPS = {True: 20, False: 4}
# The first epoch is not counted. A data set of random images has few steps in an epoch.
NUM_EPOCHS, NUM_EPOCHS_OF_RANDOM = 2, 10
RUN_SECONDS = 60.0
# Keys of a record that are shown where it has them, and their units.
SHOWN = {
    "tokens_per_second": ("tokens/s", 1), "flops_per_second_per_rank": ("TFLOP/s", 1e12), "share_of_peak": ("share of peak", 1),
    "peak_flops_per_second": ("peak TFLOP/s", 1e12),
}  # fmt: skip


class Run(NamedTuple):
    """A training whose samples per second are measured."""

    backend: str
    workload: str
    precision: str

    def __str__(self):
        return f"{self.workload}: {self.backend}, {self.precision}"


def sizes(session):
    return ON_GPU if session.on_gpu else ON_CPU


def runs(session):
    """The runs; what tells most comes first: bf16 of all, then single's other precisions, then the rest."""
    workloads = sizes(session)
    first, *other_precisions = PRECISIONS if session.on_gpu else ON_CPU_PRECISIONS[:1]
    chosen = [Run(backend, workload, first) for workload in workloads for backend in BACKENDS[:3]]
    chosen += [Run("single", workload, precision) for workload in workloads for precision in other_precisions]
    chosen += [Run(backend, workload, first) for backend in BACKENDS[3:] for workload in workloads]
    chosen += [Run(backend, workload, precision) for precision in other_precisions for workload in workloads for backend in BACKENDS[1:]]
    return [chosen_run for chosen_run in chosen if chosen_run.backend in session.lacks]


def pytest_generate_tests(metafunc):
    metafunc.parametrize("chosen_run", runs(metafunc.config.stash[SESSION]), ids=str)


def test_samples_per_second(chosen_run, session, measured):
    """Samples per second of a run are measured, and what else its record has."""
    backend, workload, precision = chosen_run
    session.expect(backend)
    num_epochs = NUM_EPOCHS_OF_RANDOM if WORKLOADS[workload].datasets[0] == "random" else NUM_EPOCHS
    name = f"speed-{workload}-{backend}-{precision}"
    options = (
        "--workload", workload, "--batch-size", sizes(session)[workload],
        "--epochs", num_epochs, "--precision", precision, "--no-stop-at-target", "--no-step-breakdown",
    )  # fmt: skip
    record = train(session, backend, name, *options, seconds=RUN_SECONDS, num_steps=NUM_STEPS[session.on_gpu])
    rate = record.samples_per_epoch * (num_epochs - 1) / sum(record.train_seconds[1:])
    measured["samples/s"] = rate
    measured |= {label: value / unit for key, (label, unit) in SHOWN.items() if (value := getattr(record, key))}
    if memory := record.gpu_memory_by_rank:
        measured["peak allocated (GiB)"] = memory.peak_allocated_bytes[0] / 2**30
