"""All settings of a run: one dataclass, which defines the command line of every backend.

A setting is declared once: type, values that it takes, Roles, default and, as its docstring, the help. Everything else is derived from it.
"""

import dataclasses
import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro

from common import command_line
from common.command_line import FROM_0, FROM_1, PERCENT, POSITIVE, RANKS, THREADS, Bounds, Pattern, flag
from common.data.formats import FORMATS
from common.data.sharding import LAST_BATCH
from common.errors import UserError
from common.model import pipelining, schedules
from common.model.weights import DTYPES
from common.model.workload_table import BY_DEFAULT, WORKLOADS

# The frameworks' seeds have 64 bits; theirs is seed * 100,003 + rank.
MAX_SEED = 2**32 - 1
# Values of --trace other than the path of a library.
TRACES = ("mpi", "events")

Dataset = Literal[tuple(dict.fromkeys(dataset for workload in WORKLOADS.values() for dataset in workload.datasets))]
Optimizer = Literal["sgd", "adam"]
Precision = Literal[tuple(DTYPES)]
SEEDS = Bounds(at_least=0, at_most=MAX_SEED)
Seed = Annotated[int, SEEDS]
MachineName = Annotated[str | None, Pattern(r"\w[\w.-]*", "letters, digits, '.', '_' and '-'")]


class Role(enum.Enum):
    """What a setting is in a comparison. Runs that are compared have equal values of a setting without any of these."""

    TRAINS = "It changes what is trained, and so the digest of the workload."
    MAY_DIFFER = "It may differ: a name, or without effect on the time, or what is compared by other means."
    NOT_COMPARED = "A run with it is left out."
    FROM_DISK = "It is for data that is read from disk, and refused for data in memory."


def of_workload(name):
    """The hint in the help about a setting whose default is the workload's."""
    defaults = "; ".join(f"{workload}: {WORKLOADS[workload].describe_default(name)}" for workload in BY_DEFAULT)
    return tyro.conf.arg(help_behavior_hint=f"(default: {defaults})")


def names_of_workloads():
    """The names of all workloads in words, those with a target first."""
    targeted = [name for name, workload in WORKLOADS.items() if workload.target is not None]
    return f"{', '.join(targeted)}; for throughput only: {', '.join(name for name in WORKLOADS if name not in targeted)}"


@dataclass(frozen=True)
class Settings:
    """The settings of a run. None: the workload's default."""

    # For pydantic, which reads them from records. What a record has of settings that exist no longer is left out.
    __pydantic_config__: ClassVar = {"strict": True, "allow_inf_nan": False, "json_schema_serialization_defaults_required": True}

    workload: Annotated[str, Role.TRAINS, tyro.conf.arg(help=f"Workload: {names_of_workloads()}.")] = "cnn"
    dataset: Annotated[Dataset | None, Role.TRAINS, of_workload("dataset")] = None
    """Dataset. cnn: digits (embedded) or mnist; transformers: pydoc (Python's documentation), tinystories or xsum, and
    for transformer pydoc-types (one chapter of it); transformer-alcf: random; resnet50: random or imagefolder. mnist, tinystories, xsum and
    imagefolder are read from --data-dir."""
    data_dir: Annotated[Path | None, Role.MAY_DIFFER] = None
    """Folder with local data: MNIST as IDX files (optionally gzipped) or mnist.npz; TinyStories as .txt or .jsonl; XSum as .jsonl.
    Text files with valid, val, test or dev as a word in their name are held out; without one, every tenth sequence is. For imagefolder: a
    folder of images per class, in the folder train if there is one; all are read into memory, 147 KiB each. With a --data-format on disk:
    the folder that launch.convert_data wrote."""
    tokenizer: Annotated[Path | None, Role.MAY_DIFFER] = None
    """Transformers on text: a local tokenizer.json, as the library tokenizers writes it, whose tokens the model has. Default: bytes."""
    data_format: Annotated[Literal[("memory", *FORMATS)], Role.MAY_DIFFER] = "memory"
    """memory: every rank reads all data before training. Others: samples are read from disk as batches need them, from the folder
    --data-dir, which python -m launch.convert_data has written in this format. tfrecord can be read in order only, so its samples have
    another order, and are compared by time alone."""
    data_budget: Annotated[float | None, POSITIVE, Role.FROM_DISK, Role.MAY_DIFFER] = None
    """MiB of memory of each rank for samples that are read from disk. Default: a quarter of the node's memory, divided by its ranks."""
    num_workers: Annotated[int, Bounds(at_least=0, at_most=THREADS.at_most), Role.FROM_DISK, Role.MAY_DIFFER] = 0
    """Threads of each rank that read samples from disk in the background, on the cores that --cores-per-rank gives beyond --threads, if
    any. 0: the training itself reads."""
    prefetch: Annotated[int, FROM_1, Role.FROM_DISK, Role.MAY_DIFFER] = 2
    """Batches that each of the --num-workers reads ahead."""
    drop_caches: Annotated[Literal["none", "once", "epoch"], Role.FROM_DISK, Role.MAY_DIFFER] = "none"
    """Take the samples' files out of the page cache before the first epoch, or before each, so that they are read from the disk."""
    batch_size: Annotated[int | None, FROM_1, Role.TRAINS, of_workload("batch_size")] = None
    """Samples (images or sequences) per step, or per micro-batch with --accumulate: per rank under weak scaling, global under strong."""
    accumulate: Annotated[int, FROM_1, Role.TRAINS] = 1
    """Micro-batches of --batch-size per step. Their gradients are added up and exchanged once per step, as those of one batch that many
    times as large."""
    last_batch: Annotated[Literal[tuple(LAST_BATCH)], Role.TRAINS] = "drop"
    """Incomplete last global batch of an epoch: drop it, or pad it with samples of weight 0."""
    evaluation_batch_size: Annotated[int | None, FROM_1, of_workload("evaluation_batch_size")] = None
    """Maximum samples per evaluation batch on each rank."""
    epochs: Annotated[int | None, FROM_1, of_workload("epochs")] = None
    """Maximum number of epochs."""
    steps_per_epoch: Annotated[int | None, FROM_1, Role.TRAINS] = None
    """Train only the first so many steps of each epoch, where data or model are too large for whole epochs. Default: all."""
    target: Annotated[float | None, Bounds(above=0, at_most=1, hint=", such as 0.97"), Role.TRAINS, of_workload("target")] = None
    """Target accuracy on the held-out samples (labels or next tokens), from 0 to 1; it stops the clock."""
    stop_at_target: bool = True
    """Stop at the evaluation that reaches the target; otherwise train all epochs."""
    scaling: Annotated[Literal["weak", "strong"], Role.TRAINS] = "weak"
    """weak: fixed batch per rank, learning rate scaled with the number of ranks after warm-up; strong: fixed global batch and
    learning rate."""
    optimizer: Annotated[Optimizer | None, Role.TRAINS, of_workload("optimizer")] = None
    """Optimizer: SGD with momentum, or Adam (beta 0.9 and 0.999, epsilon 1e-8)."""
    momentum: Annotated[float, Bounds(at_least=0, below=1), Role.TRAINS] = 0.9
    """Momentum of SGD: v = momentum * v + gradient; parameter = parameter - learning_rate * v."""
    learning_rate: Annotated[float | None, POSITIVE, Role.TRAINS, of_workload("learning_rate")] = None
    """Learning rate before scaling."""
    learning_rate_factor: Annotated[float | None, POSITIVE, Role.TRAINS, Role.MAY_DIFFER] = None
    """Factor by which warm-up scales the learning rate. Default: the number of ranks (weak), 1 (strong)."""
    warmup_epochs: Annotated[float, FROM_0, Role.TRAINS] = 1.0
    """Epochs of learning rate warm-up; may be a fraction. At 16 ranks the default trainings need 3."""
    schedule: Annotated[Literal[tuple(schedules.SCHEDULES)], Role.TRAINS] = "constant"
    """Learning rate schedule after warm-up."""
    dropout: Annotated[bool, Role.TRAINS] = False
    """Use the dropout of the original model (cnn: 0.25 and 0.5, transformer-alcf: 0.1), with a different seed on each rank."""
    precision: Annotated[Precision, Role.TRAINS] = "fp32"
    """Floating-point type of parameters, data and arithmetic. fp64 is for checking that backends agree. bf16: mixed, with parameters,
    optimizer state and loss in float32, matrix products and convolutions in bfloat16. tf32: fp32 with GPUs' TF32."""
    seed: Annotated[Seed, Role.MAY_DIFFER] = 1
    """Seed of the initial parameters and the sample order."""
    zero_stage: Literal[0, 1, 2, 3] = 1
    """deepspeed_zero: ZeRO stage; 1 shards the optimizer state, 2 also the gradients, 3 also the parameters."""
    sharding: Literal["keep", "hsdp"] | None = None
    """fsdp: keep, parameters stay whole from forward to backward pass; hsdp, 2 replicas, each sharded. Default: parameters are gathered for
    each pass."""
    averaging_period: Literal[1, 2, 4, 8, 16] = 8
    """weight_averaging, post_local_sgd: steps after which the parameters are averaged. They are also averaged at the end of an epoch."""
    local_after: Annotated[int, FROM_0] = 50
    """post_local_sgd: steps in which gradients are averaged, before each rank trains locally. A resumed run counts them anew. No effect on
    other backends."""
    reduction: Literal["fp16", "bf16", "powersgd", "adasum"] | None = None
    """How gradients are reduced. Default: averaged as they are. ddp and horovod_torch: fp16, averaged in float16. ddp and fsdp: bf16,
    averaged in bfloat16. ddp: powersgd, averaged as low-rank factors, with error feedback. horovod_torch: adasum, Horovod's adaptive sum
    of the ranks' updates."""
    powersgd_rank: Annotated[int, FROM_1] = 1
    """ddp with powersgd: rank of the factors; the higher, the closer to the average and the more bytes. No effect on others."""
    pipeline_schedule: Literal[tuple(pipelining.SCHEDULES)] = "1f1b"
    """pipeline: order in which micro-batches pass the stages. interleaved and zero_bubble: two stages per rank; naive: one
    micro-batch."""
    microbatches: Annotated[int, FROM_1] = 4
    """pipeline and pipeline_ddp: micro-batches in a step."""
    stages: Annotated[int, RANKS] = 2
    """pipeline_ddp: ranks that compute one model together, a stage each."""
    transport: Literal["mpi", "gloo"] | None = None
    """Transport of the gradients on CPUs. Default: the backend's own. Others: ddp and gradient_averaging over mpi;
    horovod_torch, horovod_tf and horovod_keras over gloo."""
    device: Annotated[Literal["auto", "cpu", "cuda"], Role.MAY_DIFFER] = "auto"
    """Device; auto: CUDA if there is a GPU, else the CPU. A matrix decides once for all of its runs, and skips a backend that lacks the
    device."""
    gpu_order: Literal["local", "reversed"] = "local"
    """GPU of a rank: local, the GPU numbered by the local rank; reversed, the same counted from the last GPU (Polaris)."""
    share_gpu: Annotated[bool, Role.NOT_COMPARED] = False
    """Single run: let several ranks compute on one GPU, to check a backend where there are fewer GPUs than ranks. Gradients go over Gloo,
    since NCCL refuses it. The run is excluded from comparisons."""
    threads: Annotated[int, THREADS] = 1
    """Threads on which each rank computes."""
    cores_per_rank: Annotated[int | None, THREADS] = None
    """Cores that each rank is bound to; with more than --threads, its communication threads have a core to themselves. Default:
    --threads."""
    bind: bool = True
    """Bind each rank to its own cores unless the launcher has done so."""
    allocator: Literal["keep", "system"] = "keep"
    """keep: the C library keeps the memory of large buffers between steps; system: its default behaviour."""
    compile: bool = False
    """PyTorch backends: train with torch.compile. Compilation is done before the clock starts; evaluation is not compiled. Requires a
    C++ compiler (g++ or $CXX) and, for a large model, a longer --watchdog-timeout. --dropout draws different numbers than without."""
    recompute: bool = False
    """Transformers: do not keep the activations inside a layer for the backward pass, but compute them again (activation checkpointing). It
    takes less memory and a second forward pass, and trains the same."""
    autotune: bool = False
    """Horovod backends: autotune cycle time and fusion threshold during training; logged in
    RESULTS/MACHINE/RUN.trace/horovod_autotune.csv. No effect on other backends."""
    watchdog_timeout: Annotated[float, FROM_0, Role.MAY_DIFFER] = 120.0
    """Seconds without progress (step or evaluation) after which a rank reports a hang and ends the run; 0: never."""
    join_timeout: Annotated[float, FROM_0, Role.MAY_DIFFER] = 60.0
    """Seconds that a rank waits for the others to join it at the start before it ends the run; 0: for ever."""
    step_breakdown: Annotated[bool, Role.MAY_DIFFER] = True
    """Measure the step breakdown after training: a few seconds of additional steps with and without communication, off the clock."""
    timeline: Annotated[bool, Role.NOT_COMPARED] = False
    """Profile one additional epoch after training, off the clock; Horovod also writes its timeline of the whole run. Output:
    RESULTS/MACHINE/RUN.trace. The run is excluded from comparisons; a matrix first runs each job without it."""
    trace: Annotated[str | None, Role.NOT_COMPARED] = None
    """Matrix only: repeat each run with MPI tracing. mpi: count all calls; events: also record each call with its times; or the path
    of a site's libmpitrace.so. Output: RESULTS/MACHINE/RUN.trace. The traced run is excluded from comparisons."""
    host_suffix: str = ""
    """Suffix that turns rank 0's short host name into the name of its fast interface, e.g. i (JSC)."""
    checkpoint_dir: Path | None = None
    """Folder for the checkpoints model-last.safetensors and model-best.safetensors (highest accuracy). Writing is on the clock."""
    checkpoint_every: Annotated[int, FROM_1] = 1
    """Epochs between checkpoints; the last epoch always writes one."""
    checkpoint_async: bool = False
    """Write checkpoints in a thread of rank 0 while training goes on, from a copy of the state."""
    resume: Annotated[bool, Role.MAY_DIFFER] = False
    """Single run: resume from the last checkpoint in --checkpoint-dir, if any; any backend may have written it. Matrix: resume the
    interrupted matrix of these backends, workloads, sizes and settings in the results, without the runs that have completed; where there is
    none, start one, as for a job that its batch system may requeue."""
    results: Annotated[Path, Role.MAY_DIFFER] = Path("results")
    """Folder for records; a run writes RESULTS/MACHINE/RUN.json."""
    machine: Annotated[MachineName, Role.MAY_DIFFER] = None
    """Name of this machine in the results. Default: the name of the Slurm cluster or PBS server, else the host name."""
    run_id: Annotated[str | None, Pattern(r"[\w@-][\w.@-]*", "letters, digits, '_', '@', '-' and, not first, '.'"), Role.MAY_DIFFER] = None
    """Name of the record. Default: time, workload, backend and number of ranks."""
    repeat: Annotated[int, FROM_0, Role.MAY_DIFFER] = 0
    """Number of the repeat, from 0; recorded only."""
    until: Annotated[float | None, PERCENT, Role.MAY_DIFFER] = None
    """Matrix only: percent; repeat until every ratio to the fastest at a size is known to ± this, --repeats times at most. Default: so many
    times."""


def with_role(role):
    """The names of the settings that have a Role."""
    return tuple(name for name, declared in command_line.annotations(Settings).items() if role in declared)


# The seed is none of them, since it differs between repeats on purpose; nor are epochs, which only limit a run under the constant schedule.
TRAINING_SETTINGS = with_role(Role.TRAINS)


def check(settings):
    """Raises UserError for the first invalid setting."""
    command_line.check(settings)
    cores_per_rank(settings)
    for name in with_role(Role.FROM_DISK):
        if settings.data_format == "memory" and (value := getattr(settings, name)) != getattr(Settings, name):
            raise UserError(f"{flag(name)} {value} is for data that is read from disk; give its --data-format, or leave it out")
    if settings.trace is not None and not (settings.trace in TRACES or Path(settings.trace).is_file()):
        raise UserError(f"--trace is {settings.trace}; it must be mpi, events, or the path of a libmpitrace.so")
    with_files = [name for name in ("resume", "checkpoint_async") if getattr(settings, name)]
    if with_files and settings.checkpoint_dir is None:
        raise UserError(f"{flag(with_files[0])} requires --checkpoint-dir")


def cores_per_rank(settings):
    """The number of cores of each rank. Raises UserError if there are fewer than threads."""
    if settings.cores_per_rank is None:
        return settings.threads
    if settings.cores_per_rank < settings.threads:
        raise UserError(f"--cores-per-rank is {settings.cores_per_rank}; it must be at least --threads, {settings.threads}")
    return settings.cores_per_rank


def as_arguments(settings, leave_out=()):
    """The command-line arguments for these settings, without those at their defaults and without the fields to leave out."""
    arguments = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if value == field.default or field.name in leave_out:
            continue
        if isinstance(value, bool):
            arguments.append(flag(field.name) if value else flag("no_" + field.name))
        else:
            # As a separate argument, a value with a leading dash would be parsed as an option.
            arguments += [f"{flag(field.name)}={value}"] if str(value).startswith("-") else [flag(field.name), str(value)]
    return arguments


def as_json(settings):
    """{name: value} of all settings as a record stores them."""
    return {name: str(value) if isinstance(value, Path) else value for name, value in dataclasses.asdict(settings).items()}
