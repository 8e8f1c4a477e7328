"""All settings of a run: one dataclass, which defines the command line of every backend."""

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from common.command_line import flag
from common.errors import UserError


@dataclass(frozen=True)
class Settings:
    """The settings of a run. None: the workload's default."""

    workload: str = "cnn"
    """Workload: cnn, transformer (small), transformer-lab, transformer-base; for throughput only: transformer-gpt2, transformer-1b,
    transformer-alcf, resnet50."""
    dataset: Literal["digits", "mnist", "pydoc", "pydoc-types", "tinystories", "xsum", "random", "imagefolder"] | None = None
    """Dataset. cnn: digits (included in scikit-learn) or mnist; transformers: pydoc (Python's documentation), tinystories or xsum, and
    for transformer pydoc-types (one chapter of it); transformer-alcf: random; resnet50: random or imagefolder. mnist, tinystories, xsum and
    imagefolder are read from --data-dir."""
    data_dir: Path | None = None
    """Folder with local data: MNIST as IDX files (optionally gzipped) or mnist.npz; TinyStories as .txt or .jsonl; XSum as .jsonl.
    Text files with valid, val, test or dev as a word in their name are held out; without one, every tenth sequence is. For imagefolder: a
    folder of images per class, in the folder train if there is one; all are read into memory, 147 KiB each. With a --data-format on disk:
    the folder that launch.convert_data wrote."""
    tokenizer: Path | None = None
    """Transformers on text: a local tokenizer.json, as the library tokenizers writes it, whose tokens the model has. Default: bytes."""
    data_format: Literal[
        "memory", "npy", "hdf5", "hdf5-mpio", "hdf5-mpio-independent", "webdataset", "tfrecord", "safetensors", "files"
    ] = "memory"
    """memory: every rank reads all data before training. Others: samples are read from disk as batches need them, from the folder
    --data-dir, which python -m launch.convert_data has written in this format. files: one file per sample. webdataset and tfrecord can be
    read in order only, so their samples have another order, and are compared by time alone. hdf5-mpio: the folder of hdf5, read through
    MPI-IO by all ranks together (h5py with MPI: TANDEM_HDF5=parallel launch/setup.sh); hdf5-mpio-independent: by each rank for itself."""
    data_budget: float | None = None
    """MiB of memory of each rank for samples that are read from disk. Default: a quarter of the node's memory, divided by its ranks."""
    num_workers: int = 0
    """Threads of each rank that read samples from disk in the background, on the cores that --cores-per-rank gives beyond --threads, if
    any. 0: the training itself reads."""
    prefetch: int = 2
    """Batches that each of the --num-workers reads ahead."""
    drop_caches: Literal["none", "once", "epoch"] = "none"
    """Take the samples' files out of the page cache before the first epoch, or before each, so that they are read from the disk."""
    batch_size: int | None = None
    """Samples (images or sequences) per step, or per micro-batch with --accumulate: per rank under weak scaling, global under strong.
    cnn: 16, transformer: 8."""
    accumulate: int = 1
    """Micro-batches of --batch-size per step. Their gradients are added up and exchanged once per step, as those of one batch that many
    times as large."""
    last_batch: Literal["drop", "pad"] = "drop"
    """Incomplete last global batch of an epoch: drop it, or pad it with samples of weight 0."""
    evaluation_batch_size: int | None = None
    """Maximum samples per evaluation batch on each rank. cnn: 90, transformer: 64."""
    epochs: int | None = None
    """Maximum number of epochs. cnn: 20, transformer: 20."""
    steps_per_epoch: int | None = None
    """Train only the first so many steps of each epoch, where data or model are too large for whole epochs. Default: all."""
    target: float | None = None
    """Target accuracy on the held-out samples (labels or next tokens), from 0 to 1; it stops the clock. cnn: 0.97, transformer: 0.4."""
    stop_at_target: bool = True
    """Stop at the evaluation that reaches the target; otherwise train all epochs."""
    scaling: Literal["weak", "strong"] = "weak"
    """weak: fixed batch per rank, learning rate scaled with the number of ranks after warm-up; strong: fixed global batch and
    learning rate."""
    optimizer: Literal["sgd", "adam"] | None = None
    """Optimizer: SGD with momentum, or Adam (beta 0.9 and 0.999, epsilon 1e-8). cnn: sgd, transformer: adam."""
    momentum: float = 0.9
    """Momentum of SGD: v = momentum * v + gradient; parameter = parameter - learning_rate * v."""
    learning_rate: float | None = None
    """Learning rate before scaling. cnn: 0.004 for sgd, 0.001 for adam; transformer: 0.05 for sgd, 0.0015 for adam."""
    learning_rate_factor: float | None = None
    """Factor by which warm-up scales the learning rate. Default: the number of ranks (weak), 1 (strong)."""
    warmup_epochs: float = 3.0
    """Epochs of learning rate warm-up; may be a fraction."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Learning rate schedule after warm-up."""
    dropout: bool = False
    """Use the dropout of the original model (cnn: 0.25 and 0.5, transformer-alcf: 0.1), with a different seed on each rank."""
    precision: Literal["fp32", "fp64", "bf16", "tf32"] = "fp32"
    """Floating-point type of parameters, data and arithmetic. fp64 is for checking that backends agree. bf16: mixed, with parameters,
    optimizer state and loss in float32, matrix products and convolutions in bfloat16. tf32: fp32 with GPUs' TF32."""
    seed: int = 1
    """Seed of the initial parameters and the sample order."""
    zero_stage: Literal[0, 1, 2, 3] = 1
    """deepspeed_zero: ZeRO stage; 1 shards the optimizer state, 2 also the gradients, 3 also the parameters."""
    sharding: Literal["keep", "hsdp"] | None = None
    """fsdp: keep, parameters stay whole from forward to backward pass; hsdp, 2 replicas, each sharded. Default: parameters are gathered for
    each pass."""
    averaging_period: Literal[1, 2, 4, 8, 16] = 8
    """weight_averaging, post_local_sgd: steps after which the parameters are averaged. They are also averaged at the end of an epoch."""
    local_after: int = 50
    """post_local_sgd: steps in which gradients are averaged, before each rank trains locally. A resumed run counts them anew. No effect on
    other backends."""
    reduction: Literal["fp16", "bf16", "powersgd", "adasum"] | None = None
    """How gradients are reduced. Default: averaged as they are. ddp and horovod_torch: fp16, averaged in float16. ddp and fsdp: bf16,
    averaged in bfloat16. ddp: powersgd, averaged as low-rank factors, with error feedback. horovod_torch: adasum, Horovod's adaptive sum
    of the ranks' updates."""
    powersgd_rank: int = 1
    """ddp with powersgd: rank of the factors; the higher, the closer to the average and the more bytes. No effect on others."""
    pipeline_schedule: Literal["1f1b", "gpipe", "interleaved", "zero_bubble", "naive"] = "1f1b"
    """pipeline: order in which micro-batches pass the stages. interleaved and zero_bubble: two stages per rank; naive: one
    micro-batch."""
    microbatches: int = 4
    """pipeline and pipeline_ddp: micro-batches in a step."""
    stages: int = 2
    """pipeline_ddp: ranks that compute one model together, a stage each."""
    transport: Literal["mpi", "gloo"] | None = None
    """Transport of the gradients on CPUs. Default: the backend's own. Others: ddp and gradient_averaging over mpi;
    horovod_torch, horovod_tf and horovod_keras over gloo."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device; auto: CUDA if there is a GPU, else the CPU. A matrix decides once for all of its runs, and skips a backend that lacks the
    device."""
    gpu_order: Literal["local", "reversed"] = "local"
    """GPU of a rank: local, the GPU numbered by the local rank; reversed, the same counted from the last GPU (Polaris)."""
    share_gpu: bool = False
    """Single run: let several ranks compute on one GPU, to check a backend where there are fewer GPUs than ranks. Gradients go over Gloo,
    since NCCL refuses it. The run is excluded from comparisons."""
    threads: int = 1
    """Threads on which each rank computes."""
    cores_per_rank: int | None = None
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
    watchdog_timeout: float = 120.0
    """Seconds without progress (step or evaluation) after which a rank reports a hang and ends the run; 0: never."""
    step_breakdown: bool = True
    """Measure the step breakdown after training: a few seconds of additional steps with and without communication, off the clock."""
    timeline: bool = False
    """Profile one additional epoch after training, off the clock; Horovod also writes its timeline of the whole run. Output:
    RESULTS/MACHINE/RUN.trace. The run is excluded from comparisons; a matrix first runs each job without it."""
    trace: str | None = None
    """Matrix only: repeat each run with MPI tracing. mpi: count all calls; events: also record each call with its times; or the path
    of a site's libmpitrace.so. Output: RESULTS/MACHINE/RUN.trace. The traced run is excluded from comparisons."""
    mllog: bool = False
    """Write an MLPerf event log while the run goes on, RESULTS/MACHINE/RUN.mllog. In a matrix such a run has no others side by side."""
    host_suffix: str = ""
    """Suffix that turns rank 0's short host name into the name of its fast interface, e.g. i (JSC)."""
    checkpoint_dir: Path | None = None
    """Folder for the checkpoints model-last.safetensors and model-best.safetensors (highest accuracy). Writing is on the clock."""
    checkpoint_every: int = 1
    """Epochs between checkpoints; the last epoch always writes one."""
    checkpoint_async: bool = False
    """Write checkpoints in a thread of rank 0 while training goes on, from a copy of the state."""
    resume: bool = False
    """Single run: resume from the last checkpoint in --checkpoint-dir, if any; any backend may have written it. Matrix: resume the
    last matrix in these results and skip the runs that have completed."""
    results: Path = Path("results")
    """Folder for records; a run writes RESULTS/MACHINE/RUN.json."""
    machine: str | None = None
    """Name of this machine in the results. Default: the name of the Slurm cluster, else the host name."""
    run_id: str | None = None
    """Name of the record. Default: time, workload, backend and number of ranks."""
    repeat: int = 0
    """Number of the repeat, from 0; recorded only."""


# The frameworks' seeds have 64 bits; theirs is seed * 100,003 + rank.
MAX_SEED = 2**32 - 1
# Values of --trace other than the path of a library.
TRACES = ("mpi", "events")
# Settings that change the training and thus the digest of the workload. Excluded: the seed, which differs between repeats on
# purpose, and epochs, which only limit a run under the constant schedule.
TRAINING_SETTINGS = (
    "workload", "dataset", "batch_size", "accumulate", "last_batch", "steps_per_epoch", "target", "scaling", "optimizer", "momentum",
    "learning_rate", "learning_rate_factor", "warmup_epochs", "schedule", "dropout", "precision",
)  # fmt: skip


def check(settings):
    """Raises UserError for the first invalid setting."""
    from_one = (
        "batch_size", "accumulate", "epochs", "steps_per_epoch", "evaluation_batch_size", "powersgd_rank", "microbatches", "stages",
        "threads", "cores_per_rank", "checkpoint_every", "prefetch",
    )  # fmt: skip
    unbounded = float("inf")
    from_zero = (("seed", 0, MAX_SEED), ("repeat", 0, unbounded), ("local_after", 0, unbounded), ("num_workers", 0, unbounded))
    for name, least, most in (*((name, 1, unbounded) for name in from_one), *from_zero):
        value = getattr(settings, name)
        if value is not None and not least <= value <= most:
            bounds = f"at least {least}" if most == unbounded else f"from {least} to {most}"
            raise UserError(f"{flag(name)} is {value}; it must be an integer, {bounds}")
    cores_per_rank(settings)
    for name in ("learning_rate", "learning_rate_factor"):
        value = getattr(settings, name)
        if value is not None and not 0 < value < float("inf"):
            raise UserError(f"{flag(name)} is {value}; it must be greater than 0")
    _check_data(settings)
    if not 0 <= settings.momentum < 1:
        raise UserError(f"--momentum is {settings.momentum}; it must be at least 0 and less than 1")
    if not 0 <= settings.warmup_epochs < float("inf"):
        raise UserError(f"--warmup-epochs is {settings.warmup_epochs}; it must be at least 0")
    if settings.target is not None and not 0 < settings.target <= 1:
        raise UserError(f"--target is {settings.target}; accuracy is a fraction from 0 to 1, e.g. 0.97")
    if settings.trace is not None and not (settings.trace in TRACES or Path(settings.trace).is_file()):
        raise UserError(f"--trace is {settings.trace}; it must be mpi, events, or the path of a libmpitrace.so")
    if not settings.watchdog_timeout >= 0:
        raise UserError(f"--watchdog-timeout is {settings.watchdog_timeout:g}; it must be at least 0 seconds")
    with_files = [name for name in ("resume", "checkpoint_async") if getattr(settings, name)]
    if with_files and settings.checkpoint_dir is None:
        raise UserError(f"{flag(with_files[0])} requires --checkpoint-dir")
    if settings.run_id is not None and not re.fullmatch(r"[\w.@-]+", settings.run_id):
        raise UserError(f"--run-id is {settings.run_id!r}; use letters, digits, '.', '_', '@' and '-'")
    if settings.machine is not None and not re.fullmatch(r"\w[\w.-]*", settings.machine):
        raise UserError(f"--machine is {settings.machine!r}; use letters, digits, '.', '_' and '-'")


def _check_data(settings):
    """Raises UserError for settings of reading from disk that are invalid, or without it."""
    for name in ("data_budget", "num_workers", "prefetch", "drop_caches"):
        if settings.data_format == "memory" and (value := getattr(settings, name)) != getattr(Settings, name):
            raise UserError(f"{flag(name)} {value} is for data that is read from disk; give its --data-format, or leave it out")
    if settings.data_budget is not None and not 0 < settings.data_budget < float("inf"):
        raise UserError(f"--data-budget is {settings.data_budget:g}; it must be above 0 MiB")
    if settings.data_format == "hdf5-mpio" and settings.num_workers:
        raise UserError(
            f"--num-workers is {settings.num_workers}; all ranks read hdf5-mpio together, which threads would do in another order; "
            "leave it out, or give hdf5-mpio-independent"
        )


def cores_per_rank(settings):
    """The number of cores of each rank. Raises UserError if there are fewer than threads."""
    if settings.cores_per_rank is None:
        return settings.threads
    if settings.cores_per_rank < settings.threads:
        raise UserError(f"--cores-per-rank is {settings.cores_per_rank}; it must be at least --threads, {settings.threads}")
    return settings.cores_per_rank


def as_arguments(settings):
    """The command-line arguments for these settings, without those at their defaults."""
    arguments = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if value == field.default:
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
