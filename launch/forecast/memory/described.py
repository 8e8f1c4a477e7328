"""What is forecast: the training that the command line describes, and its checks."""

from common import workloads
from common.command_line import flag
from common.config import Settings
from common.cost import memory_forecast
from common.cost.memory_forecast import Training
from common.errors import UserError
from common.model.families import Decoder, can_recompute

# The vocabulary and the width of a head of GPT-2.
VOCABULARY, HEAD_WIDTH = 50_257, 64
BATCH_SIZE, CONTEXT = 8, 1024
# Options that describe a decoder.
SIZES = ("params", "layers", "width", "heads", "context", "vocabulary")


def training_of(arguments):
    """The Training that the command line describes. Raises UserError where it describes none."""
    sizes = [flag(name) for name in SIZES if getattr(arguments, name) is not None]
    if arguments.workload and sizes:
        raise UserError(f"{sizes[0]} is for a model that is described by --layers and --width; leave it out, or --workload")
    preset = workloads.workload_of(Settings(workload=arguments.workload)) if arguments.workload else None
    model = preset.model if preset else _decoder(arguments, sizes)
    if arguments.recompute and not can_recompute(model):
        raise UserError(f"--recompute would save no memory of {arguments.workload}, which has few layers; leave it out")
    return Training(
        model=model,
        batch_size=arguments.batch_size or (preset.batch_size if preset else BATCH_SIZE),
        precision=arguments.precision,
        optimizer=arguments.optimizer or (preset.optimizer if preset else "adam"),
        recompute=arguments.recompute,
        microbatches=arguments.microbatches or arguments.ranks,
        num_parameters=arguments.params,
        device=arguments.device,
    )


def _decoder(arguments, sizes):
    if missing := [flag(name) for name in ("layers", "width") if getattr(arguments, name) is None]:
        problem = f"{' and '.join(sizes)} alone describe no model, {' and '.join(missing)} missing" if sizes else "no model is given"
        raise UserError(f"{problem}; give --layers and --width, or a preset with --workload")
    width, heads = arguments.width, arguments.heads or max(1, arguments.width // HEAD_WIDTH)
    if width % heads or width // heads % 2:
        raise UserError(f"--width {width} is not an even width for each of {heads} heads; choose other --heads")
    return Decoder(width, heads, arguments.layers, arguments.context or CONTEXT, arguments.vocabulary or VOCABULARY)


def description(training):
    """The training in a line."""
    model = training.model
    sizes = f", {model.num_layers} layers of width {model.width:,}" if hasattr(model, "num_layers") else ""
    return (
        f"{memory_forecast.num_parameters(training):,.0f} parameters{sizes}; {training.batch_size:,} samples per step, "
        f"{training.precision}, {training.optimizer}{', recomputed' if training.recompute else ''}"
    )
