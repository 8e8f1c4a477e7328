"""Sound models of the user's form that look like mistakes: nothing is wrong with them."""

from tests.support.planted_bugs import LABELS
from tests.support.user_models import BATCH_NORM, IMAGES, VECTORS

LOOK_WRONG = {
    "batch-norm": BATCH_NORM,
    "unused-parameters": VECTORS
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.forgotten = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(x)
""",
    "clamped-weights": VECTORS
    + """
class Net(nn.Linear):
    def forward(self, x):
        with torch.no_grad():
            self.weight.clamp_(-0.1, 0.1)
        return super().forward(x)

def model():
    return Net(4, 3)
""",
    "one-fixed-mask": VECTORS
    + """
class Net(nn.Linear):
    def forward(self, x):
        return super().forward(x * (torch.rand(4, generator=torch.Generator().manual_seed(3)) < 0.7))

def model():
    return Net(4, 3)
""",
    "global-augmentation": LABELS
    + """
import random

def read(self, index):
    return self.inputs[index] * (-1 if random.random() < 0.1 else 1) + 0.1 * torch.randn(4), self.targets[index]

Labelled.__getitem__ = read
""",
    "functional-dropout": VECTORS
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.drop = nn.Linear(4, 3), 0.5

    def forward(self, x):
        queries = x[:, None, :, None]
        x = nn.functional.scaled_dot_product_attention(queries, queries, queries, dropout_p=0.5 * self.training).flatten(1)
        return self.head(nn.functional.dropout(x, self.drop, self.training))
""",
    "spectral-norm": VECTORS
    + """
def model():
    return nn.Sequential(nn.utils.spectral_norm(nn.Linear(4, 8)), nn.ReLU(), nn.Linear(8, 3))
""",
    "counted-steps": VECTORS
    + """
class Net(nn.Linear):
    def __init__(self):
        super().__init__(4, 3)
        self.register_buffer("num_steps", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.num_steps += int(self.training)
        return super().forward(x) * (1 + 1 / (1 + self.num_steps))
""",
    "kept-outputs": VECTORS
    + """
class Net(nn.Linear):
    last = None

    def forward(self, x):
        self.last = super().forward(x)
        return self.last

def model():
    return Net(4, 3)
""",
    "frozen-layer": VECTORS
    + """
def model():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    net[0].requires_grad_(False)
    return net
""",
    "few-different-samples": """
def data():
    inputs = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 4)
    return pairs(inputs.repeat(4, 1), inputs.repeat(4, 1).sum(1).long() % 3)

def model():
    return nn.Linear(4, 3)
""",
    "group-norm-and-augmented-images": IMAGES
    + """
def model():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4), nn.Flatten(), nn.Linear(144, 3))
""",
    "summed-errors": """
TARGET, LOWER_IS_BETTER = 0.1, True

def data():
    return pairs(numbers(32, 4), numbers(32, 4).sum(1, keepdim=True))

def model():
    return nn.Linear(4, 1)

def loss(outputs, targets):
    return nn.functional.mse_loss(outputs, targets)

def metric(outputs, targets):
    return ((outputs - targets) ** 2).sum(), targets.sum(), (targets**2).sum()

def finish(sums, num_samples):
    errors, total, squares = sums
    return (errors / (squares - total**2 / num_samples)) ** 0.5
""",
    # The loss takes the gradient of the outputs by the inputs.
    "gradient-penalty": VECTORS
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x):
        x = x.detach().requires_grad_()
        return self.layers(x), x

def loss(outputs, targets):
    scores, x = outputs
    slopes = torch.autograd.grad(scores.sum(), x, create_graph=True)[0]
    return nn.functional.cross_entropy(scores, targets) + ((slopes.norm(dim=1) - 1) ** 2).mean()
""",
    "named-tuple-and-dataclass": """
import dataclasses
from typing import NamedTuple

class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor

@dataclasses.dataclass(frozen=True)
class Inputs:
    pair: Pair
    names: tuple

class Pairs(torch.utils.data.Dataset):
    def __init__(self, shift):
        self.samples = numbers(32, 4) + shift

    def __len__(self):
        return 32

    def __getitem__(self, index):
        return Inputs(Pair(self.samples[index, :2], self.samples[index, 2:]), ("left", "right")), index % 3

def data():
    return Pairs(0), Pairs(1)

def collate(samples):
    pairs = [inputs.pair for inputs, _ in samples]
    pair = Pair(*(torch.stack(part) for part in zip(*pairs)))
    return Inputs(pair, ("left", "right")), torch.tensor([target for _, target in samples])

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(2, 3), nn.Linear(2, 3)

    def forward(self, inputs):
        return self.left(inputs.pair.left) + self.right(inputs.pair.right)
""",
    # Samples of other lengths lie one after the other, so that no axis is that of samples.
    "ragged-batches-and-a-norm": """
def data():
    def samples(shift):
        return [(numbers(index % 3 + 1, 4) + shift + index, index % 3) for index in range(32)]
    return samples(0.0), samples(0.5)

def collate(samples):
    lengths = torch.tensor([len(part) for part, _ in samples])
    return (torch.cat([part for part, _ in samples]), lengths), torch.tensor([label for _, label in samples])

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, inputs):
        parts, lengths = inputs
        return self.head(self.norm(torch.stack([part.mean(0) for part in self.body(parts).split(lengths.tolist())])))
""",
    # As PyTorch Geometric's batches, whose numbers are in a mapping of their own that knows them.
    "graph-object": """
import dataclasses
import weakref
from collections import UserDict

class Store(UserDict):
    pass

@dataclasses.dataclass
class Kind:
    name: str

class Graph:
    def __init__(self, **numbers):
        self.store = Store(numbers)
        self.store.graph, self.kind = weakref.ref(self), Kind

    def __copy__(self):
        return Graph(**self.store)

def data():
    samples = list(zip(numbers(32, 4), classes(32).tolist()))
    return samples, [(inputs + 1, label) for inputs, label in samples]

def collate(samples):
    return Graph(nodes=torch.stack([nodes for nodes, _ in samples])), torch.tensor([label for _, label in samples])

class Net(nn.Linear):
    def forward(self, graph):
        return super().forward(graph.store.graph().store["nodes"])

def model():
    return Net(4, 3)
""",
    # The model needs the targets, as torchvision's detectors do, and a part has a rate of its own.
    "losses-of-the-model": """
class Detected(torch.utils.data.Dataset):
    def __init__(self, inputs):
        self.inputs, self.labels = inputs, classes(32)

    def __len__(self):
        return 32

    def __getitem__(self, index):
        return (self.inputs[index], {"label": self.labels[index]}), ()

def data():
    return Detected(numbers(32, 4)), Detected(numbers(32, 4) + 1)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, inputs):
        samples, targets = inputs
        outputs = self.head(self.body(samples).relu())
        return {"class": nn.functional.cross_entropy(outputs, targets["label"]), "size": 0.1 * (outputs**2).mean()}

def loss(losses, _):
    return sum(losses.values())

LEARNING_RATE = 0.1

def optimizer(named_parameters):
    groups = {"body": [], "head": []}
    for name, parameter in named_parameters:
        groups[name.partition(".")[0]].append(parameter)
    return torch.optim.SGD([{"params": groups["body"]}, {"params": groups["head"], "lr": 0.01}], lr=LEARNING_RATE, momentum=0.9)
""",
    "default-type-float64": VECTORS
    + """
torch.set_default_dtype(torch.float64)

def model():
    return nn.Linear(4, 3)
""",
    "sparse-embedding": """
def data():
    inputs = torch.arange(64).reshape(32, 2) % 16
    return TensorDataset(inputs, classes(32)), TensorDataset((inputs + 5) % 16, classes(32))

def model():
    return nn.Sequential(nn.Embedding(16, 4, sparse=True), nn.Flatten(), nn.Linear(8, 3))
""",
    "experts": VECTORS
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.experts = nn.Linear(4, 8), nn.ModuleList([nn.Linear(4, 3) for _ in range(8)])

    def forward(self, x):
        weights, chosen = self.router(x).softmax(1).max(1)
        outputs = x.new_zeros(len(x), 3)
        for number in chosen.unique().tolist():
            outputs[chosen == number] = self.experts[number](x[chosen == number])
        return outputs * weights[:, None]
""",
}
