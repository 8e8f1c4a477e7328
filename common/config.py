"""All settings of a run: one dataclass, which defines the command line of every backend.

A setting is declared once: its type, the values that it takes, its Roles, the program that takes it where not all do, its default and, as
its docstring, its help. The first setting of a section of the help has its heading. Those of single backends are declared in their files
(common/declarations.py). Everything else is derived from this.
"""

import ast
import dataclasses
import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from common import command_line
from common.bounds import CONTEXT, FROM_0, FROM_1, LAYERS, NUMBER, POSITIVE, THREADS, Bounds, Pattern
from common.command_line import Help, Section, flag
from common.declarations import Setting, own_settings
from common.errors import UserError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# The frameworks' seeds have 64 bits; theirs is seed * 100,003 + rank.
MAX_SEED = 2**32 - 1
# The value of --trace other than the path of a library.
TRACE_MPI = "mpi"

Precision = Literal["fp32", "fp64", "bf16", "tf32"]
Schedule = Literal["constant", "cosine"]
Optimizer = Literal["sgd", "adam"]
Control = Literal["copy", "delayed"]
# The --library-setting of a run that searches with the library as it is.
NO_SETTING = "none"
# How much longer a delayed control takes, as a share of its time.
CONTROL_DELAY = 0.05
FileFormat = Literal["npy", "hdf5"]
DataFormat = Literal["memory", FileFormat]
SEEDS = Bounds(at_least=0, at_most=MAX_SEED)
SHARE = Bounds(above=0, at_most=1, hint=", such as 0.97")
Seed = Annotated[int, SEEDS]
NAME_OF_MACHINE = Pattern(r"\w[\w.-]*", "letters, digits, '.', '_' and '-'")
MachineName = Annotated[str | None, NAME_OF_MACHINE]
NAME_OF_RUN = Pattern(r"[\w@-][\w.@+-]*", "letters, digits, '_', '@', '-' and, not first, '.' and '+'")
RunName = Annotated[str | None, NAME_OF_RUN]


class Role(enum.Enum):
    """What a setting is in a comparison. Runs that are compared have equal values of a setting without any of these."""

    TRAINS = "It changes what is trained, and so the digest of the workload."
    MAY_DIFFER = "It may differ: a name, or without effect on the time, or what is compared by other means."
    NOT_COMPARED = "A run with it is left out."


class Only(NamedTuple):
    """The program that alone takes a setting. `advice` ends the message of the other one, which refuses it."""

    program: str
    advice: str = ""


MATRIX, SINGLE_RUN = "a matrix", "a single run"
PRELOADED = Only(MATRIX, "; trace a single run with LD_PRELOAD, see launch/trace/README.md")
IN_AXES = Only(SINGLE_RUN, "; here use --workloads and --repeats")
FROM_EPOCH_1 = Only(SINGLE_RUN, ", python -m frameworks.BACKEND; the runs of a matrix start from epoch 1")
NEVER_COMPARED = Only(SINGLE_RUN, ", python -m frameworks.BACKEND; it is never compared")
BY_CONTROLS = Only(SINGLE_RUN, "; here use --controls")
BY_BEST = Only(SINGLE_RUN, "; here use --best")


@dataclass(frozen=True)
class SharedSettings:
    """The settings of a run that all backends have. None: the workload's default."""

    # For pydantic, which reads them from records. What a record has of settings that exist no longer is left out.
    __pydantic_config__: ClassVar = {"strict": True, "allow_inf_nan": False, "json_schema_serialization_defaults_required": True}

    workload: Annotated[str, Section("workload"), Role.TRAINS, IN_AXES] = "cnn"
    dataset: Annotated[str | None, Role.TRAINS] = None
    """Dataset. cnn: digits (embedded) or mnist, which is read from --data-dir; transformers: pydoc (Python's documentation), and for
    transformer pydoc-types (one chapter of it); resnet50: random."""
    data_dir: Annotated[Path | None, Role.MAY_DIFFER] = None
    """Folder with local data: mnist.npz or, with a --data-format on disk, what launch.convert_data wrote."""
    model: Annotated[str | None, Role.MAY_DIFFER] = None
    """A model of your own in plain PyTorch, in place of a workload: a Python file, or package.module, with model(), data() and
    loss(outputs, targets) (frameworks/own_model/README.md)."""
    model_args: Annotated[str | None, Role.MAY_DIFFER] = None
    """Arguments of its model() as a JSON object, such as '{"width": 512}'."""
    # The digest of the workload has the sizes of its model.
    layers: Annotated[int | None, LAYERS, Role.MAY_DIFFER] = None
    """Transformers: number of layers. Default of this and other sizes: the workload's."""
    width: Annotated[int | None, FROM_1, Role.MAY_DIFFER] = None
    """Transformers: width of the model, which its heads divide."""
    heads: Annotated[int | None, FROM_1, Role.MAY_DIFFER] = None
    """Transformers: attention heads of a layer."""
    context: Annotated[int | None, CONTEXT, Role.MAY_DIFFER] = None
    """Transformers: tokens in a sample."""
    epochs: Annotated[int | None, Section("duration"), FROM_1] = None
    """Maximum number of epochs."""
    target: Annotated[float | None, NUMBER, Role.TRAINS] = None
    """Target accuracy on the held-out samples (labels or next tokens), above 0 and at most 1, or number of the metric of --model; it stops
    the clock."""
    stop_at_target: bool = True
    """Stop at the evaluation that reaches the target; otherwise train all epochs."""
    batch_size: Annotated[int | None, Section("training"), FROM_1, Role.TRAINS] = None
    """Samples (images or sequences) per step, or per micro-batch with --accumulate: per rank under weak scaling, global under strong."""
    scaling: Annotated[Literal["weak", "strong"], Role.TRAINS] = "weak"
    """weak: fixed batch per rank, learning rate scaled with the number of ranks after warm-up; strong: fixed global batch and
    learning rate."""
    accumulate: Annotated[int, FROM_1, Role.TRAINS] = 1
    """Micro-batches of --batch-size per step. Their gradients are added up and exchanged once per step, as those of one batch that many
    times as large."""
    optimizer: Annotated[Optimizer | None, Role.TRAINS] = None
    """Optimizer: SGD with momentum, or Adam (beta 0.9 and 0.999, epsilon 1e-8)."""
    learning_rate: Annotated[float | None, POSITIVE, Role.TRAINS] = None
    """Learning rate before scaling."""
    warmup_epochs: Annotated[float, FROM_0, Role.TRAINS] = 1.0
    """Epochs of learning rate warm-up; may be a fraction. At 16 ranks the default trainings need 3."""
    schedule: Annotated[Schedule, Role.TRAINS] = "constant"
    """Learning rate schedule after warm-up."""
    momentum: Annotated[float, Bounds(at_least=0, below=1), Role.TRAINS] = 0.9
    """Momentum of SGD: v = momentum * v + gradient; parameter = parameter - learning_rate * v."""
    precision: Annotated[Precision, Role.TRAINS] = "fp32"
    """Floating-point type of parameters, data and arithmetic. fp64 is for checking that backends agree. bf16: mixed, with parameters,
    optimizer state and loss in float32, matrix products and convolutions in bfloat16. tf32: fp32 with GPUs' TF32."""
    seed: Annotated[Seed, Role.MAY_DIFFER] = 1
    """Seed of the initial parameters and the sample order."""
    dropout: Annotated[bool, Role.TRAINS] = False
    """Use the dropout of the original model (cnn: 0.25 and 0.5), with a different seed on each rank."""
    device: Annotated[Literal["auto", "cpu", "cuda"], Section("machine"), Role.MAY_DIFFER] = "auto"
    """Device; auto: CUDA if there is a GPU, else the CPU."""
    threads: Annotated[int, THREADS] = 1
    """Threads on which each rank computes."""
    cores_per_rank: Annotated[int | None, THREADS] = None
    """Cores that each rank is bound to; with more than --threads, its communication threads have a core to themselves. Default:
    --threads."""
    bind: bool = True
    """Bind each rank to its own cores unless the launcher has done so."""
    mkl_kernels: Literal["default", "fast"] = "default"
    """PyTorch backends on CPUs: kernels that Intel's MKL takes for matrix products. default: on a processor that is not Intel's, those
    for AVX2; fast: those for the instruction sets that the processor has. No effect on Intel's processors, GPUs and TensorFlow. Refused
    where PyTorch has no MKL. The end of a matrix names it where PyTorch's products are slow."""
    share_gpu: Annotated[bool, Role.NOT_COMPARED, NEVER_COMPARED] = False
    """Let several ranks compute on one GPU, to check a backend where there are fewer GPUs than ranks. Gradients go over Gloo,
    since NCCL refuses it. The run is excluded from comparisons."""
    results: Annotated[Path, Section("record"), Role.MAY_DIFFER] = Path("results")
    """Folder for records; a run writes RESULTS/MACHINE/RUN.json."""
    machine: Annotated[MachineName, Role.MAY_DIFFER] = None
    """Name of this machine in the results. Default: the name of the Slurm cluster or PBS server, else the host name."""
    run_id: Annotated[RunName, Role.MAY_DIFFER, IN_AXES] = None
    """Name of the record. Default: time, workload, backend and number of ranks."""
    repeat: Annotated[int, FROM_0, Role.MAY_DIFFER, IN_AXES] = 0
    """Number of the repeat, from 0; recorded only."""
    control: Annotated[Control | None, Role.MAY_DIFFER, BY_CONTROLS] = None
    """Control of the verdicts of a matrix, which is compared with the runs of its backend alone. copy: as they are, so that it should be as
    fast. delayed: with waits that make each epoch, evaluation included, take 5 % longer, so that it should be found slower."""
    library_setting: Annotated[str | None, Pattern(r"none|\w+=[\w.]+", "NAME=VALUE, or none"), Role.MAY_DIFFER, BY_BEST] = None
    """A setting of the library, NAME=VALUE, of those in the backend's declaration, in a search of the best; none: as it is. The run is not
    compared."""
    step_breakdown: Annotated[bool, Role.MAY_DIFFER] = True
    """Measure the step breakdown after training: a few seconds of additional steps with and without communication, off the clock."""
    timeline: Annotated[bool, Role.NOT_COMPARED] = False
    """Profile one additional epoch after training, off the clock; Horovod also writes its timeline of the whole run. Output:
    RESULTS/MACHINE/RUN.trace. The run is excluded from comparisons; a matrix first runs each job without it."""
    trace: Annotated[str | None, Role.NOT_COMPARED, PRELOADED] = None
    """Repeat each run with MPI tracing. mpi: count all calls; or the path of a site's libmpitrace.so. Output: RESULTS/MACHINE/RUN.trace.
    The traced run is excluded from comparisons."""
    resume: Annotated[bool, Section("checkpoint"), Role.MAY_DIFFER] = False
    """Resume from the last checkpoint in --checkpoint-dir, if any; any backend may have written it."""
    checkpoint_dir: Annotated[Path | None, FROM_EPOCH_1] = None
    """Folder for the checkpoint model-last.safetensors of the last epoch. Writing is on the clock."""
    data_format: Annotated[DataFormat, Section("data reading"), Role.MAY_DIFFER] = "memory"
    """memory: every rank reads all data before training. Others: samples are read from disk as batches need them, from the folder
    --data-dir, which python -m launch.convert_data has written in this format."""
    num_workers: Annotated[int, Bounds(at_least=0, at_most=THREADS.at_most), Role.MAY_DIFFER] = 0
    """Threads of each rank that read two batches each ahead of training, from disk or of a --model; --cores-per-rank gives them cores of
    their own. 0: the training itself reads."""
    watchdog_timeout: Annotated[float, Section("timeout"), FROM_0, Role.MAY_DIFFER] = 120.0
    """Seconds without progress (step or evaluation) after which a rank reports a hang and ends the run; 0: never."""
    join_timeout: Annotated[float, FROM_0, Role.MAY_DIFFER] = 60.0
    """Seconds that a rank waits for the others to join it at the start before it ends the run; 0: for ever."""


def _field_of(name: str, by_backend: Mapping[str, Setting]) -> tuple[str, Any, Any]:
    """Returns the field of a setting that these backends declare: its name, its type and its default."""
    setting, helps = next(iter(by_backend.values())), dict[str, list[str]]()
    for backend, declared in by_backend.items():
        helps.setdefault(declared.help, []).append(backend)
    text = " ".join(f"{', '.join(backends)}: {help_of_backends}" for help_of_backends, backends in helps.items())
    choices = tuple(dict.fromkeys(choice for declared in by_backend.values() for choice in declared.choices))
    kind: Any = Path if setting.is_path else Literal[choices] if choices else type(setting.default)
    roles = [] if setting.is_compared else [Role.MAY_DIFFER]
    declared_values = (Help(text), Section("backend"), *([setting.bounds] if setting.bounds else []), *roles)
    return name, Annotated[(kind if setting.default is not None else kind | None, *declared_values)], setting.default


if TYPE_CHECKING:

    class Settings(SharedSettings):
        """All settings of a run: the shared ones, and those of single backends."""

        def __getattr__(self, name: str) -> Any: ...

else:
    Settings = dataclasses.make_dataclass(
        "Settings",
        [_field_of(*declared) for declared in own_settings().items()],
        bases=(SharedSettings,),
        frozen=True,
        # By which pickle finds it.
        namespace={"__module__": __name__},
    )


def with_role(role: Role) -> tuple[str, ...]:
    """Returns the names of the settings that have a Role."""
    return tuple(name for name, declared in command_line.declarations(Settings).items() if role in declared)


def not_for(program: str) -> dict[str, str]:
    """Returns the settings that a program does not take, each with the message about that."""
    declared = command_line.declarations(Settings).items()
    limits = {name: limit for name, declared_values in declared for limit in declared_values if isinstance(limit, Only)}
    return {name: f"is for {limit.program}{limit.advice}" for name, limit in limits.items() if limit.program != program}


# The seed is none of them, since it differs between repeats on purpose; nor are epochs, which only limit a run under the constant schedule.
TRAINING_SETTINGS = with_role(Role.TRAINS)


def check(settings: Settings) -> None:
    """Raises UserError for the first invalid setting."""
    command_line.check(settings)
    cores_per_rank(settings)
    if settings.trace not in (None, TRACE_MPI) and not _is_library(Path(settings.trace)):
        raise UserError(f"--trace is {settings.trace}; it must be mpi or the path of a libmpitrace.so")
    if settings.resume and settings.checkpoint_dir is None and settings.run_id is None:
        raise UserError("--resume requires --checkpoint-dir, or the --run-id of a run with epochs of more than 20 s")


def _is_library(path: Path) -> bool:
    """Returns whether a file begins as one of ELF: the loader leaves another one out, and says so in every process."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def cores_per_rank(settings: Settings) -> int:
    """Returns the number of cores of each rank. Raises UserError if there are fewer than threads."""
    if settings.cores_per_rank is None:
        return settings.threads
    if settings.cores_per_rank < settings.threads:
        raise UserError(f"--cores-per-rank is {settings.cores_per_rank}; it must be at least --threads, {settings.threads}")
    return settings.cores_per_rank


def library_setting(settings: Settings) -> dict[str, Any]:
    """Returns the name and the value of --library-setting; nothing without one."""
    name, is_given, value = (settings.library_setting or NO_SETTING).partition("=")
    return {name: ast.literal_eval(value)} if is_given else {}


def as_arguments(options: "DataclassInstance", leave_out: Collection[str] = ()) -> list[str]:
    """Returns the command-line arguments for settings, or other options, without those at their defaults and those to leave out."""
    arguments = []
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if value == field.default or field.name in leave_out:
            continue
        if isinstance(value, bool):
            arguments.append(flag(field.name) if value else flag("no_" + field.name))
        else:
            # As a separate argument, a value with a leading dash would be parsed as an option.
            arguments += [f"{flag(field.name)}={value}"] if str(value).startswith("-") else [flag(field.name), str(value)]
    return arguments


def as_json(settings: Settings) -> dict[str, Any]:
    """Returns {name: value} of all settings as a record stores them."""
    return {name: str(value) if isinstance(value, Path) else value for name, value in dataclasses.asdict(settings).items()}
