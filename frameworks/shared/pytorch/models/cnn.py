"""The CNN of common/model/cnn.py in PyTorch."""

import math
from collections.abc import Callable

from torch import Tensor, nn

from common.model import cnn, conventions
from frameworks.shared.pytorch.models.layers import Convolution, autocast


class CnnModule(nn.Module):
    """The CNN of common/model/cnn.py: images (samples, height, width) -> (samples, classes) logits."""

    mixed = False

    def __init__(self, model: cnn.Cnn, dropout: bool) -> None:
        super().__init__()
        first, second = model.channels
        self.conv1 = Convolution(1, first, model.window)
        self.conv2 = Convolution(first, second, model.window)
        self.pooling = model.pooling
        self.dense1 = nn.Linear(math.prod(model.pooled_shape), model.hidden)
        self.dense2 = nn.Linear(model.hidden, model.num_classes)
        rates = conventions.CNN_DROPOUT if dropout else (0.0, 0.0)
        self.dropout1, self.dropout2 = nn.Dropout(rates[0]), nn.Dropout(rates[1])

    @autocast
    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts():
            x = part(x)
        return x

    def parts(self) -> tuple[Callable[[Tensor], Tensor], ...]:
        """Returns the functions that compute the parts of the model. Between them, images are as they lie in memory: channels last."""
        return self.first, self.second, self.hidden, self.dense2

    def first(self, x: Tensor) -> Tensor:
        return self.conv1(x.unsqueeze(1)).relu().permute(0, 2, 3, 1)

    def second(self, x: Tensor) -> Tensor:
        x = self.conv2(x.permute(0, 3, 1, 2)).relu()
        return self.dropout1(nn.functional.max_pool2d(x, self.pooling)).permute(0, 2, 3, 1)

    def hidden(self, x: Tensor) -> Tensor:
        # In the order of channels-last memory flattening copies nothing.
        return self.dropout2(self.dense1(x.flatten(1)).relu())
