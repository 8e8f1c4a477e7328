"""The CNN of common/model/cnn.py in PyTorch."""

from collections.abc import Callable

from torch import Tensor, nn

from common.model import conventions
from common.model.cnn import Cnn
from frameworks.shared.networks.layers_pytorch import Convolution, FlattenedLinear, cross_entropy, is_right, zeroed

loss, metric = cross_entropy, is_right


def model(description: Cnn) -> nn.Module:
    return zeroed(CnnModule(description))


class CnnModule(nn.Module):
    """The CNN of common/model/cnn.py: images (samples, height, width) -> (samples, classes) logits."""

    def __init__(self, model: Cnn) -> None:
        super().__init__()
        first, second = model.channels
        self.conv1 = Convolution(1, first, model.window)
        self.conv2 = Convolution(first, second, model.window)
        self.pooling = model.pooling
        self.dense1 = FlattenedLinear(model.pooled_shape, model.hidden)
        self.dense2 = nn.Linear(model.hidden, model.num_classes)
        self.dropout1, self.dropout2 = map(nn.Dropout, conventions.CNN_DROPOUT)

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
