"""The table of workloads: model, data, hyperparameters and target of each."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from common.command_line import flag
from common.errors import UserError
from common.metric import Metric
from common.model.cnn import Cnn
from common.model.decoder import Decoder
from common.model.description import Model, parameters_of
from common.model.encoder_decoder import EncoderDecoder
from common.model.resnet import ResNet50
from common.model.weights import Initial


class Workload(NamedTuple):
    """A model and the default settings to train it.

    The first of `datasets` is the default. A workload with `target` None is for throughput only: it has no accuracy and no time
    to solution. `metric` is the name of what is compared with the target. `clip_norm`: the largest norm of the whole gradient.
    `decided` has the functions of a file that decide a setting, by its name, and `name` is the file's.
    """

    model: Model
    datasets: tuple[str, ...]
    batch_size: int
    evaluation_batch_size: int
    epochs: int
    target: float | None
    optimizer: str
    learning_rates: dict[str, float]
    metric: Metric = "accuracy"
    lower_is_better: bool = False
    clip_norm: float | None = None
    decided: Mapping[str, str] = MappingProxyType({})
    name: str | None = None

    @property
    def parameters(self) -> dict[str, Initial]:
        return parameters_of(self.model)

    def defaults(self, optimizer: str | None = None) -> dict[str, str | int | float | None]:
        """Returns the defaults of the settings whose default is the workload's, by name.

        The learning rate is that of `optimizer`, or of the workload's optimizer.
        """
        return {
            "dataset": self.datasets[0],
            "batch_size": self.batch_size,
            "epochs": self.epochs,
            "target": self.target,
            "optimizer": self.optimizer,
            "learning_rate": self.learning_rates[optimizer or self.optimizer],
        }

    def describe_default(self, name: str) -> str:
        """Returns the default of a setting in words. The learning rate has one for each optimizer."""
        if name == "learning_rate":
            return ", ".join(f"{rate} for {optimizer}" for optimizer, rate in self.learning_rates.items())
        return str(self.defaults()[name])


# The data set of a user's file.
OF_FILE = "file"
TEXTS = ("pydoc", "tinystories", "xsum")

WORKLOADS = {
    "cnn": Workload(Cnn(), ("digits", "mnist"), 16, 90, 20, 0.94, "sgd", {"sgd": 0.004, "adam": 0.001}),
    "transformer": Workload(Decoder(64, 4, 2, 64), ("pydoc-types", *TEXTS), 8, 64, 20, 0.46, "adam", {"sgd": 0.05, "adam": 0.0015}),
    "transformer-lab": Workload(Decoder(288, 6, 6, 256), TEXTS, 8, 16, 12, 0.60, "adam", {"sgd": 0.05, "adam": 0.001}),
    "transformer-base": Workload(Decoder(512, 8, 6, 256), TEXTS, 8, 16, 12, 0.60, "adam", {"sgd": 0.05, "adam": 0.0005}),
    # Sizes of GPT-2 and, but for the number of heads, of GPT-3 XL; learning rates of Brown et al. 2020, arXiv:2005.14165, table 2.1. The
    # larger one is not tied, so that tensor_parallel and pipeline train it too: with bytes it would have 0.04 % fewer parameters.
    "transformer-gpt2": Workload(Decoder(768, 12, 12, 1024, tied=True), TEXTS, 8, 8, 1, None, "adam", {"sgd": 0.05, "adam": 0.0006}),
    "transformer-1b": Workload(Decoder(2048, 16, 24, 2048), TEXTS, 8, 8, 1, None, "adam", {"sgd": 0.05, "adam": 0.0002}),
    "transformer-alcf": Workload(EncoderDecoder(), ("random",), 32, 32, 1, None, "sgd", {"sgd": 0.01, "adam": 0.0001}),
    # 0.1 for a batch of 256: Goyal et al. 2017, arXiv:1706.02677, section 5.1.
    "resnet50": Workload(ResNet50(), ("random", "imagefolder"), 32, 32, 1, None, "sgd", {"sgd": 0.0125, "adam": 0.001}),
}
# The workloads of a matrix that names none.
BY_DEFAULT = ("cnn", "transformer")

Transformer = Decoder | EncoderDecoder
# The field of a Transformer that each setting changes, if the Transformer has it.
SIZES = {
    "layers": "num_layers", "width": "width", "heads": "num_heads", "context": "context",
    "source_length": "source_length", "target_length": "target_length",
}  # fmt: skip


def resized(model: Model, sizes: Mapping[str, int], workload: str) -> Model:
    """Returns the model of a workload with these SIZES. The width inside of an encoder's and decoder's layers keeps its ratio.

    Raises UserError for a size that the model has not, and where its heads do not divide its width.
    """
    for name in sizes:
        if not (isinstance(model, Transformer) and hasattr(model, SIZES[name])):
            raise UserError(f"{flag(name)} is not for {workload}, whose model has no such size; leave it out, or choose another workload")
    if not (sizes and isinstance(model, Transformer)):
        return model
    changed = dataclasses.replace(model, **{SIZES[name]: size for name, size in sizes.items()})
    if isinstance(model, EncoderDecoder):
        changed = dataclasses.replace(changed, hidden=model.hidden * changed.width // model.width)
    has_rotary = isinstance(changed, Decoder)
    if changed.width % changed.num_heads or (has_rotary and changed.width // changed.num_heads % 2):
        even = "an even width" if has_rotary else "a whole width"
        raise UserError(f"--width {changed.width} is not {even} for each of {changed.num_heads} heads; choose other --heads")
    return changed
