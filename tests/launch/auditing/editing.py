"""Training scripts that are made by edits of whole ones, those of scripts/, which are called styles."""

import textwrap
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"


def script_text(style, edits=()):
    """Returns the text of a style with its edits made: (text that stands exactly once in the style, text in its place).

    In both texts the lines after the first are indented as the line in which the text stands.
    """
    text = (SCRIPTS / f"{style}.py").read_text()
    changes = []
    for old, new in edits:
        places = []
        for start in (index for index in range(len(text)) if text.startswith(old.split("\n")[0], index)):
            line = text[text.rfind("\n", 0, start) + 1 :]
            indentation = "\n" + line[: len(line) - len(line.lstrip(" "))]
            replaced = old.replace("\n", indentation)
            if text.startswith(replaced, start):
                places.append((start, start + len(replaced), textwrap.dedent(new).strip("\n").replace("\n", indentation)))
        assert len(places) == 1, f"{style}: stands {len(places)} times: {old}"
        changes += places
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return text


# Edits that are part of several scripts.
HALF = [
    ("def train(model, loader, optimizer):", "def train(model, loader, optimizer, scaler):"),
    ("loss = F.cross_entropy", 'with torch.autocast("cpu", dtype=torch.float16):\n    loss = F.cross_entropy'),
    ("loss.backward()\noptimizer.step()", "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()"),
    ("scheduler = ", 'scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)\nscheduler = '),
    ("train(model, train_loader, optimizer)", "train(model, train_loader, optimizer, scaler)"),
]
MEAN_OF_RANK = [
    (', ignore_index=PADDING, reduction="sum")', ", ignore_index=PADDING)"),
    ("num_tokens = (labels != PADDING).sum()\ndist.all_reduce(num_tokens)", ""),
    ("(loss * world_size / num_tokens).backward()", "loss.backward()"),
    ("{loss / num_tokens * world_size:.3f}", "{loss:.3f}"),
]
CLOSURE = [
    (
        """prediction = model(train_inputs[indices])
loss = loss_function(prediction, train_targets[indices])
optimizer.zero_grad()
loss.backward()""",
        """
        def closure(indices=indices):
            optimizer.zero_grad()
            loss = loss_function(model(train_inputs[indices]), train_targets[indices])
            loss.backward()
            return loss
        """,
    ),
    ("nn.utils.clip_grad_norm_(model.parameters(), 1.0)\noptimizer.step()", "loss = optimizer.step(closure)"),
]
BACKBONE_IN_GRAPH = ("with torch.no_grad():\n    features = self.backbone(x)", "features = self.backbone(x)")
BACKBONE_NOT_FROZEN = ("for parameter in self.backbone.parameters():\n    parameter.requires_grad = False", "")
