"""Sound models of the user's own, of the kinds that people bring, in a few lines each."""

from tests.support.user_models import IMAGES, PERCEPTRON, VECTORS

RESIDUAL = (
    IMAGES
    + """
class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)
"""
)
SOUND = {
    "u-net": """
def data():
    return pairs(numbers(16, 1, 8, 8), classes(16, 8, 8))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.middle = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up, self.head = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(8, 3, 1)

    def forward(self, x):
        kept = self.down(x).relu()
        below = self.middle(nn.functional.max_pool2d(kept, 2)).relu()
        return self.head(torch.cat([self.up(below), kept], 1))
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

def layers(model):
    return model.encoder.layers
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
""",
    "residual-network": RESIDUAL
    + """
def model():
    blocks = [Residual(nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU()) for _ in range(2)]
    return nn.Sequential(nn.Conv2d(3, 4, 3), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
""",
    "stochastic-depth": RESIDUAL
    + """
class DropPath(nn.Module):
    drop_prob = 0.5

    def forward(self, x):
        kept = 1 - self.drop_prob * self.training
        return x * torch.empty(len(x), 1, 1, 1).bernoulli_(kept) / kept

def model():
    return nn.Sequential(nn.Conv2d(3, 4, 3), Residual(nn.Conv2d(4, 4, 1), DropPath()), nn.Flatten(), nn.Linear(144, 3))
""",
    # Samples of several lengths, which collate() puts into a batch.
    "packed-sequences": """
def data():
    samples = [(numbers(index % 4 + 1, 4) + index / 8, index % 3) for index in range(40)]
    return samples[:32], samples[32:]

def collate(samples):
    parts, targets = zip(*samples)
    return nn.utils.rnn.pack_sequence(parts, enforce_sorted=False), torch.tensor(targets)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.head = nn.GRU(4, 8), nn.Linear(8, 3)

    def forward(self, packed):
        return self.head(self.gru(packed)[1][-1])
""",
    "recurrent-with-a-first-state": """
def data():
    return pairs(numbers(16, 6, 4), classes(16))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        first = torch.zeros(1, len(x), 8), torch.zeros(1, len(x), 8)
        return self.head(self.lstm(x, first)[0][:, -1])
""",
    "tags-by-a-random-field": """
def data():
    return pairs(numbers(16, 5, 4), classes(16, 5))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emissions, self.transitions = nn.Linear(4, 3), nn.Parameter(torch.zeros(3, 3))

    def forward(self, x):
        return self.emissions(x), self.transitions

def loss(outputs, tags):
    emissions, transitions = outputs
    of_tags = emissions.gather(2, tags[..., None]).sum((1, 2)) + transitions[tags[:, :-1], tags[:, 1:]].sum(1)
    of_all = emissions[:, 0]
    for step in range(1, 5):
        of_all = (of_all[..., None] + transitions).logsumexp(1) + emissions[:, step]
    return (of_all.logsumexp(1) - of_tags).mean()
""",
    "mean-teacher": VECTORS
    + """
import copy

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = nn.Linear(4, 3)
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            for slow, fast in zip(self.teacher.parameters(), self.student.parameters()):
                slow.lerp_(fast, 0.1 * self.training)
        return self.student(x), self.teacher(x)

def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs[0], targets) + nn.functional.mse_loss(*outputs)
""",
    # As LoRA: a frozen weight and a product of two small ones.
    "adapters": PERCEPTRON.replace("return nn", "net = nn")
    + """
    net.requires_grad_(False)
    for layer in (net[0], net[2]):
        nn.utils.parametrize.register_parametrization(layer, "weight", Adapter(*layer.weight.shape))
    return net

class Adapter(nn.Module):
    def __init__(self, num_outputs, num_inputs):
        super().__init__()
        self.up, self.down = nn.Parameter(torch.zeros(num_outputs, 1)), nn.Parameter(torch.randn(1, num_inputs))

    def forward(self, weight):
        return weight + self.up @ self.down
""",
    # The same layer at each depth, computed again in the backward pass, on words of which some are padding.
    "shared-block": """
from torch.utils.checkpoint import checkpoint

def data():
    words = torch.arange(32 * 6).reshape(32, 6) % 11 + 1
    words[torch.arange(6) > torch.arange(32)[:, None] % 6] = 0
    return pairs(words, classes(32))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(12, 8, padding_idx=0), nn.Linear(8, 3)
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)] * 3)

    def forward(self, words):
        x = self.embedding(words)
        for layer in self.layers:
            x = checkpoint(layer, x, src_key_padding_mask=words == 0, use_reentrant=False)
        return self.head(x[:, 0])
""",
}
