"""Small models in the place of large ones, for the same code, and batches of random samples. No two sizes of a model are alike."""

import numpy as np

from common.model import model_file
from common.model.cnn import Cnn
from common.model.decoder import Decoder
from common.model.resnet import ResNet50
from common.training import batches


class SmallCnn(Cnn):
    """The CNN with few channels, computed by the same files. Both convolutions are the first of two stages, as in the CNN."""

    __module__ = Cnn.__module__
    channels = 4, 8
    hidden = 32


CNN = SmallCnn()
# Of the default workload's data. Four ranks divide its heads, and two blocks are more than one.
DECODER = Decoder(32, 4, 2, 64)
TIED = Decoder(32, 2, 1, 64, tied=True)
RESNET = ResNet50(blocks=(2, 1, 1, 1), width=4, image_size=48, num_classes=10)
MODELS = {
    "decoder": Decoder(24, 3, 2, 10, num_tokens=70),
    "tied decoder": Decoder(48, 3, 3, 10, num_tokens=70, tied=True),
    "cnn": Cnn(),
    "resnet": RESNET,
}


def module_of(model):
    """The module of a model in PyTorch, without dropout and with parameters of 0."""
    from frameworks.shared.pytorch import modules

    module = model_file.build(model.file_in("pytorch"), 0)
    modules.without_dropout(module)
    return module


def random_batch(model, num_samples, precision="fp64", seed=1):
    """A batch of random samples, with the shapes and types of real ones, and weights whose sum is below 1."""
    zeros, stream = batches.of_warm_up(model, num_samples, precision), np.random.default_rng(seed)

    def drawn(array):
        # Pixels are bytes, and other whole numbers tokens or classes.
        end = 256 if array.dtype == np.uint8 else 10
        numbers = stream.random(array.shape) if array.dtype.kind == "f" else stream.integers(0, end, array.shape)
        return numbers.astype(array.dtype)

    return zeros._replace(inputs=drawn(zeros.inputs), targets=drawn(zeros.targets), weights=drawn(zeros.weights) * zeros.weights)
