"""Every setting of a run: one dataclass, from which the command line of every backend is made."""

import contextlib
import dataclasses
import io
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from common.errors import UserError


@dataclass(frozen=True)
class Settings:
    """The settings of a run. Where the default is None, the workload's own value is taken."""

    workload: str = "cnn"
    """What to train: cnn, transformer (small), transformer-lab, transformer-base, or transformer-alcf (for throughput alone)."""
    dataset: Literal["digits", "mnist", "pydoc", "tinystories", "xsum", "random"] | None = None
    """Data to train on. cnn: digits, which comes with scikit-learn, or mnist; transformers: pydoc, the documentation that comes with
    Python, or tinystories or xsum; transformer-alcf: random. mnist, tinystories and xsum are read from --data-dir."""
    data_dir: Path | None = None
    """Folder with local data: MNIST as IDX files (gzipped or not) or mnist.npz; TinyStories as .txt or .jsonl; XSum as .jsonl. Texts
    are held out where a file has valid, val, test or dev as a word in its name, else every tenth sequence is."""
    batch_size: int | None = None
    """Samples (images or sequences) a step: per rank under weak scaling, over all ranks under strong. cnn: 32, transformer: 16."""
    last_batch: Literal["drop", "pad"] = "drop"
    """What happens to the samples that do not fill a global batch: left out, or filled up with samples of weight 0."""
    evaluation_batch_size: int | None = None
    """Held-out samples evaluated at once on a rank, at most. cnn: 90, transformer: 64."""
    epochs: int | None = None
    """Epochs to train at most. cnn: 24, transformer: 12."""
    target: float | None = None
    """Accuracy on the held-out samples (of labels, or of next tokens) that ends the clock, from 0 to 1. cnn: 0.96, transformer: 0.6."""
    stop_at_target: bool = True
    """Whether to stop at the evaluation that meets the target; otherwise all epochs are trained."""
    scaling: Literal["weak", "strong"] = "weak"
    """weak: fixed batch per rank, rate scaled with the ranks and warmed up; strong: fixed global batch, fixed rate."""
    optimizer: Literal["sgd", "adam"] | None = None
    """Optimizer: SGD with momentum, or Adam (beta 0.9 and 0.999, epsilon 1e-8). cnn: sgd, transformer: adam."""
    momentum: float = 0.9
    """Momentum of SGD: v = momentum * v + gradient; parameter = parameter - rate * v."""
    learning_rate: float | None = None
    """Learning rate before scaling. cnn: 0.01 for sgd, 0.001 for adam; transformer: 0.05 for sgd, 0.002 for adam."""
    rate_factor: float | None = None
    """The rate after warm-up over the rate before scaling. Default: the number of ranks (weak), 1 (strong)."""
    warmup_epochs: float = 3.0
    """Epochs over which the rate rises to its scaled value; may be a fraction."""
    schedule: Literal["constant", "cosine"] = "constant"
    """The rate after warm-up."""
    dropout: bool = False
    """Whether to drop out as the original model does (cnn: 0.25 and 0.5, transformer-alcf: 0.1), with a seed of its own on each rank."""
    precision: Literal["fp32", "fp64"] = "fp32"
    """Floating-point type of parameters, data and arithmetic. fp64 shows that runs are equal; fp32 is for speed."""
    seed: int = 1
    """Seed of the initial parameters and of the order of the samples."""
    zero_stage: Literal[0, 1, 2, 3] = 1
    """deepspeed_zero: the stage of ZeRO, which divides optimizer state (1), gradients (2) and parameters (3) among the ranks."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto takes CUDA where there is a GPU."""
    gpu_order: Literal["local", "reversed"] = "local"
    """Which GPU of its node a rank takes: local, the one of its local rank; reversed, the same counted from the last (Polaris)."""
    threads: int = 1
    """Cores of each rank: its threads, and the cores it is bound to."""
    bind: bool = True
    """Whether to bind each rank to cores of its own, unless the launcher did."""
    allocator: Literal["keep", "system"] = "keep"
    """Whether the C library keeps the memory of large buffers between steps, or does as it does by itself."""
    compile: bool = False
    """Backends on PyTorch alone: train with torch.compile, which compiles before the clock starts; evaluation is not compiled. Needs a
    C++ compiler (g++, or what CXX names), and for a large model a longer --stall-limit; --dropout then draws other numbers."""
    autotune: bool = False
    """Horovod's backends: Horovod tunes its cycle time and fusion threshold while it trains, and logs it in
    RESULTS/MACHINE/RUN.trace/horovod_autotune.csv. For other backends it does nothing."""
    stall_limit: float = 120.0
    """Seconds after which a rank that does not go on, in no step and no evaluation, tells where it stands and ends the run; 0: never."""
    account: bool = True
    """After training, off the clock, train some seconds more, with communication and without, to tell where the time of a step goes."""
    timeline: bool = False
    """Profile one more epoch after training, off the clock; Horovod writes its timeline of the whole run. All goes into
    RESULTS/MACHINE/RUN.trace. The run is left out of comparisons; a matrix makes each run without it first."""
    trace: str | None = None
    """A matrix: make each run once more with MPI traced. mpi: count all calls; events: keep them with their times too; or the path
    of a site's own libmpitrace.so. All goes into RESULTS/MACHINE/RUN.trace, and the run is left out of comparisons."""
    host_suffix: str = ""
    """What turns rank 0's short host name into the name of its fast interface, e.g. i (JSC)."""
    snapshot_dir: Path | None = None
    """Folder for snapshots: model-last.safetensors, and model-best.safetensors by accuracy. They are written on the clock."""
    snapshot_every: int = 1
    """Epochs from one snapshot to the next; the last epoch is always kept."""
    resume: bool = False
    """A single run: go on from the last snapshot in --snapshot-dir, which any backend may have written, if there is one. A matrix: go on
    with the last one that these results have, running what has not come to a good end."""
    results: Path = Path("results")
    """Folder for the records; a run writes RESULTS/MACHINE/RUN.json."""
    machine: str | None = None
    """Name of this machine in the results. Default: the Slurm cluster's name, else the host name."""
    run_id: str | None = None
    """Name of the record. Default: made from the time, workload, backend and ranks."""
    repeat: int = 0
    """Which repeat of the same run this is, counted from 0; recorded, changes nothing."""


# The frameworks' own seeds have 64 bits: one of these times 100,003, and the rank.
MAX_SEED = 2**32 - 1
# What --trace takes besides the path of a library.
TRACES = ("mpi", "events")
# What a setting changes in the training itself. The seed does too, but differs between repeats on purpose; epochs only bound it
# where the schedule is constant.
MATHEMATICS = (
    "workload", "dataset", "batch_size", "last_batch", "target", "scaling", "optimizer", "momentum", "learning_rate",
    "rate_factor", "warmup_epochs", "schedule", "dropout", "precision",
)  # fmt: skip


def check(settings):
    """Raises UserError for the first setting that cannot be, saying what it should be."""
    from_one = ("batch_size", "epochs", "evaluation_batch_size", "threads", "snapshot_every")
    unbounded = float("inf")
    for name, least, most in (*((name, 1, unbounded) for name in from_one), ("seed", 0, MAX_SEED), ("repeat", 0, unbounded)):
        value = getattr(settings, name)
        if value is not None and not least <= value <= most:
            up_to = "" if most == unbounded else f" to {most}"
            raise UserError(f"{flag(name)} is {value}; it must be a whole number from {least}{up_to}")
    for name in ("learning_rate", "rate_factor"):
        value = getattr(settings, name)
        if value is not None and not 0 < value < float("inf"):
            raise UserError(f"{flag(name)} is {value}; it must be above 0")
    if not 0 <= settings.momentum < 1:
        raise UserError(f"--momentum is {settings.momentum}; it must be from 0 to below 1")
    if not 0 <= settings.warmup_epochs < float("inf"):
        raise UserError(f"--warmup-epochs is {settings.warmup_epochs}; it must be 0 or above")
    if settings.target is not None and not 0 < settings.target <= 1:
        raise UserError(f"--target is {settings.target}; accuracy goes from 0 to 1, as in --target 0.97")
    if settings.trace is not None and not (settings.trace in TRACES or Path(settings.trace).is_file()):
        raise UserError(f"--trace is {settings.trace}; give mpi, events, or the path of a libmpitrace.so")
    if not settings.stall_limit >= 0:
        raise UserError(f"--stall-limit is {settings.stall_limit:g}; it must be 0 or above, in seconds")
    if settings.resume and settings.snapshot_dir is None:
        raise UserError("--resume goes on from a snapshot; say with --snapshot-dir where it is")
    if settings.run_id is not None and not re.fullmatch(r"[\w.@-]+", settings.run_id):
        raise UserError(f"--run-id is {settings.run_id!r}; use letters, digits, '.', '_', '@' and '-'")
    if settings.machine is not None and not re.fullmatch(r"\w[\w.-]*", settings.machine):
        raise UserError(f"--machine is {settings.machine!r}; use letters, digits, '.', '_' and '-'")


def flag(name):
    return "--" + name.replace("_", "-")


def parse(kind, program, description, arguments=None):
    """An instance of the dataclass `kind` from the command line.

    Prints the help and exits with 0 where it is asked for. Raises UserError, in one line, for arguments that cannot be read.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if {"-h", "--help"} & set(arguments):
        return tyro.cli(kind, prog=program, description=description, args=["--help"])
    told = io.StringIO()
    try:
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
            return tyro.cli(kind, prog=program, description=description, args=arguments)
    except SystemExit:
        raise UserError(f"{one_line(told.getvalue())}; see {program} --help") from None


def one_line(told):
    """What tyro says of arguments it cannot read, which it draws in a box over several lines, in one."""
    text = re.sub(r"[^\x20-\x7e]+", " ", re.sub(r"\x1b\[[0-9;]*m", "", told))
    text = re.sub(r"\s+", " ", re.sub(r"-{4,}", " ", text.split("For full helptext")[0])).strip()
    if found := re.search(r"Unrecognized options: (.*)", text):
        return f"unknown argument: {found[1].strip()}"
    if found := re.search(r"Argument helptext: (.*)", text):
        given = re.search(r"(?:arguments:|from|value|invalid choice) \[?('[^\]]*?')", text)
        return f"cannot take {given[1] if given else 'what was given'} as {found[1].strip()}"
    return re.sub(r"^(Missing argument|Invalid choice|Value error|Parsing error) ", "", text).rstrip(".")


def as_arguments(settings):
    """The command-line arguments that make these settings, leaving out what is at its default."""
    arguments = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if value == field.default:
            continue
        if isinstance(value, bool):
            arguments.append(flag(field.name) if value else flag("no_" + field.name))
        else:
            # A value that begins with a dash would be read as an option of its own.
            arguments += [f"{flag(field.name)}={value}"] if str(value).startswith("-") else [flag(field.name), str(value)]
    return arguments


def as_json(settings):
    """The settings as they stand in a record: names and plain values."""
    return {name: str(value) if isinstance(value, Path) else value for name, value in dataclasses.asdict(settings).items()}
