"""Models of the user's own, in plain PyTorch: sound ones of kinds that Tandem has no family of, and traps."""

from common.config import Settings

BEGINNING = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets)

def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))

def pairs(inputs, targets):
    return TensorDataset(inputs, targets), TensorDataset(inputs.roll(1, -1), targets)

def classes(*shape):
    return torch.randint(0, 3, shape, generator=torch.Generator().manual_seed(2))
"""
IMAGES = """
def data():
    return pairs(numbers(16, 3, 8, 8), classes(16))
"""
VECTORS = """
def data():
    return pairs(numbers(32, 4), classes(32))
"""
PERCEPTRON = (
    VECTORS
    + """
def model():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
"""
)
SOUND = {
    "u-net": """
def data():
    return pairs(numbers(16, 1, 8, 8), classes(16, 8, 8))

class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.middle = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up, self.head = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(8, 3, 1)

    def forward(self, x):
        kept = self.down(x).relu()
        below = self.middle(nn.functional.max_pool2d(kept, 2)).relu()
        return self.head(torch.cat([self.up(below), kept], 1))

def model():
    return UNet()
""",
    "mlp-mixer": IMAGES
    + """
class Mixer(nn.Module):
    def __init__(self, num_patches, width):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens, self.channels = nn.Linear(num_patches, num_patches), nn.Linear(width, width)

    def forward(self, x):
        x = x + self.tokens(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.second(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.layers, self.head = nn.Conv2d(3, 8, 4, 4), nn.ModuleList([Mixer(4, 8), Mixer(4, 8)]), nn.Linear(8, 3)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))

def model():
    return Net()
""",
    "graph-convolution": """
def data():
    links = (numbers(16, 5, 5) > 0).float()
    return [({"nodes": nodes, "links": link}, label) for nodes, link, label in zip(numbers(16, 5, 4), links, classes(16))], [
        ({"nodes": torch.ones(5, 4), "links": torch.eye(5)}, 1)
    ]

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, graph):
        links = graph["links"] / graph["links"].sum(-1, keepdim=True).clamp(min=1)
        return (links @ self.second((links @ self.first(graph["nodes"])).relu())).mean(1)

def model():
    return Net()
""",
    # All that a file may say of the training.
    "all-functions": """
class Flipped:
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        image, label = self.samples[index]
        return (image.flip(-1) if torch.rand(()) < 0.5 else image) + 0.1 * torch.randn(image.shape), label

def data():
    train, test = pairs(numbers(16, 3, 8, 8), classes(16))
    return Flipped(train), test

def model():
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.ReLU(), nn.Linear(8, 3))

CLIP_NORM, LEARNING_RATE = 0.05, 0.1

def optimizer(parameters):
    groups = {True: [], False: []}
    for parameter in parameters:
        groups[parameter.dim() > 1].append(parameter)
    return torch.optim.SGD([{"params": groups[True], "weight_decay": 0.1}, {"params": groups[False]}], lr=LEARNING_RATE, momentum=0.9)

def scheduler(optimizer, num_steps):
    return torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.1, num_steps)
""",
    "lstm": """
def data():
    return pairs(numbers(16, 6, 4), classes(16))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 8, num_layers=2, batch_first=True, dropout=0.1), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])

def model():
    return Net()
""",
    "vision-transformer": IMAGES
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.position = nn.Conv2d(3, 8, 4, 4), nn.Parameter(torch.zeros(1, 4, 8))
        self.encoder, self.head = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.encoder(self.patches(x).flatten(2).transpose(1, 2) + self.position).mean(1))

def model():
    return Net()

def layers(model):
    return model.encoder.layers
""",
}
# A model for each way in which training on several ranks differs from that of one process.
TRAPS = {
    "batch-norm": VECTORS
    + """
def model():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
""",
    "hidden-state": VECTORS
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.scale = nn.Linear(4, 3), 1.0

    def forward(self, x):
        self.scale = 0.9 * self.scale + 0.1 * x.detach().std()
        return self.head(x / self.scale)

def model():
    return Net()
""",
    "unseeded-layer": VECTORS
    + """
def model():
    head, numbers = nn.Linear(4, 3), torch.Generator()
    numbers.seed()
    nn.init.normal_(head.weight, generator=numbers)
    return head
""",
    "unused-parameters": VECTORS
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.forgotten = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(x)

def model():
    return Net()
""",
    "tied-weights": """
def data():
    return pairs(torch.arange(32 * 4).reshape(32, 4) % 5, classes(32, 4))

class Block(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.table, self.inner = table, nn.Linear(8, 8)

    def forward(self, x):
        return self.inner(self.table(x)).relu()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        table = nn.Embedding(5, 8)
        self.layers, self.head = nn.ModuleList([Block(table)]), nn.Linear(8, 5, bias=False)
        self.head.weight = table.weight

    def forward(self, x):
        return self.head(self.layers[0](x)).transpose(1, 2)

def model():
    return Net()
""",
    "random-layer": VECTORS
    + """
class Net(nn.Linear):
    def forward(self, x):
        return super().forward(nn.functional.dropout(x, 0.5, self.training))

def model():
    return Net(4, 3)
""",
    "mixed-samples": VECTORS
    + """
class Net(nn.Linear):
    def forward(self, x):
        return super().forward(x / x.std(0))

def model():
    return Net(4, 3)
""",
    "loss-of-a-batch": PERCEPTRON
    + """
def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs / outputs.std(), targets)
""",
    "clipping-hook": PERCEPTRON.replace("return nn", "net = nn")
    + """
    for parameter in net.parameters():
        parameter.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    return net
""",
    "clipping-loss": PERCEPTRON
    + """
def loss(outputs, targets):
    if outputs.requires_grad:
        outputs.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    return nn.functional.cross_entropy(outputs, targets)
""",
    "clipping-optimizer": PERCEPTRON
    + """
LEARNING_RATE = 0.1

class Clipped(torch.optim.SGD):
    def step(self, closure=None):
        nn.utils.clip_grad_norm_([parameter for group in self.param_groups for parameter in group["params"]], 0.05)
        return super().step(closure)

def optimizer(parameters):
    return Clipped(parameters, lr=LEARNING_RATE)
""",
    "layer-wise-optimizer": PERCEPTRON
    + """
LEARNING_RATE = 0.1

class Lars(torch.optim.Optimizer):
    def __init__(self, parameters, lr=0.1):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.sub_(group["lr"] * parameter.norm() / (parameter.grad.norm() + 1e-9) * parameter.grad)

def optimizer(parameters):
    return Lars(parameters, lr=LEARNING_RATE)
""",
    "accumulating-optimizer": PERCEPTRON
    + """
LEARNING_RATE = 0.1

class EverySecond(torch.optim.SGD):
    num_calls = 0

    def zero_grad(self, set_to_none=True):
        if self.num_calls % 2 == 0:
            super().zero_grad(set_to_none)

    def step(self, closure=None):
        self.num_calls += 1
        if self.num_calls % 2 == 0:
            super().step(closure)

def optimizer(parameters):
    return EverySecond(parameters, lr=LEARNING_RATE)
""",
}
# What a file has at least, with a metric.
PLAIN = """
import torch
from torch import nn
from torch.utils.data import TensorDataset

def model(width=4):
    return nn.Linear(3, width)

def data():
    inputs = torch.arange(60.0).reshape(20, 3) / 60
    targets = torch.arange(20) % 4
    return TensorDataset(inputs, targets), TensorDataset(inputs, targets)

def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets)

def metric(outputs, targets):
    return (outputs.argmax(1) == targets).sum()
"""


def written(folder, text=PLAIN, name="mine.py"):
    path = folder / name
    path.write_text(text)
    return path


def settings_of(path, **settings):
    return Settings(model=str(path), **settings)
