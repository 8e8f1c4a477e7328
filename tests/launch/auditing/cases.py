"""Training scripts with a known verdict: whole ones in scripts/, called styles, and others made of them by edits."""

import textwrap
from pathlib import Path
from typing import NamedTuple

SCRIPTS = Path(__file__).parent / "scripts"


class Wrong(NamedTuple):
    """A script that trains wrongly: `check` names what is wrong, or what else is as true; `source` is the report that it rebuilds."""

    style: str
    edits: list[tuple[str, str]]
    check: str | tuple[str, ...]
    source: str = ""


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
BACKBONE_IN_GRAPH = ("with torch.no_grad():\n    features = self.backbone(x)", "features = self.backbone(x)")
BACKBONE_NOT_FROZEN = ("for parameter in self.backbone.parameters():\n    parameter.requires_grad = False", "")

RIGHT = {
    style: (style, [])
    for style in ("images", "regression", "trainer", "language_model", "gan", "distill", "finetune", "by_hand", "fsdp", "uneven")
} | {
    "horovod": ("horovod_digits", []),
    "deepspeed": ("deepspeed_engine", []),
    "images-worker": ("images", [("batch_size=args.batch_size, sampler=sampler)", "args.batch_size, sampler=sampler, num_workers=1)")]),
    "images-compiled": ("images", [("DDP(Net())", 'DDP(torch.compile(Net(), backend="eager"))')]),
    "images-few-steps": ("images", [("optimizer.step()", "optimizer.step()\nif step == 3:\n    break")]),
    "images-exit": ("images", [("sampler.set_epoch(epoch)", "if epoch == 2:\n    raise SystemExit(0)\nsampler.set_epoch(epoch)")]),
    "images-half": ("images", HALF),
    "images-frozen-layer": ("images", [("model = DDP(Net())", "net = Net()\nnet.conv.requires_grad_(False)\nmodel = DDP(net)")]),
    "images-without-random-numbers": ("images", [("nn.Dropout(0.1)", "nn.Identity()"), ("manual_seed(100 + rank)", "manual_seed(100)")]),
    "images-evaluated-within-epochs": (
        "images",
        [
            ("def train(model, loader, optimizer):", "def train(model, loader, optimizer, test_loader):"),
            ("optimizer.step()", "optimizer.step()\nif step % 4 == 3:\n    evaluate(model, test_loader)\n    model.train()"),
            ("train(model, train_loader, optimizer)", "train(model, train_loader, optimizer, test_loader)"),
        ],
    ),
    "images-augmented": (
        "images",
        [("loss = F", "if torch.rand(()) < 0.5:\n    images = images.flip(3)\nimages = images + 0.1 * torch.randn_like(images)\nloss = F")],
    ),
    "images-compressed": (
        "images",
        [
            ("model = DDP(Net())", "model = DDP(Net())\nmodel.register_comm_hook(None, default_hooks.fp16_compress_hook)"),
            (
                "import torch.nn.functional as F",
                "import torch.nn.functional as F\nfrom torch.distributed.algorithms.ddp_comm_hooks import default_hooks",
            ),
        ],
    ),
    "images-views": (
        "images",
        [
            ("DDP(Net())", "DDP(Net(), gradient_as_bucket_view=True, static_graph=True)"),
            ("optimizer.zero_grad()", "optimizer.zero_grad(set_to_none=False)"),
        ],
    ),
    "images-group-norm": ("images", [("nn.BatchNorm2d(8)", "nn.GroupNorm(2, 8)"), ("DDP(Net())", "DDP(Net(), broadcast_buffers=False)")]),
    "images-rank-0-evaluates": (
        "images",
        [
            ("dist.all_reduce(counts)", ""),
            ("sampler=DistributedSampler(test_set, shuffle=False))", "shuffle=False)"),
            ("accuracy = evaluate(model, test_loader)\nif rank == 0:", "if rank == 0:\n    accuracy = evaluate(model.module, test_loader)"),
        ],
    ),
    "images-resumed": (
        "images",
        [
            (
                "sampler.set_epoch(epoch)",
                'dist.barrier()\nif epoch:\n    model.module.load_state_dict(torch.load("last.pt"))\nsampler.set_epoch(epoch)',
            ),
            ('print(f"epoch', 'torch.save(model.module.state_dict(), "last.pt")\nprint(f"epoch'),
        ],
    ),
    "regression-sharded-optimizer": (
        "regression",
        [
            ("from torch import nn", "from torch import nn\nfrom torch.distributed.optim import ZeroRedundancyOptimizer"),
            ("torch.optim.Adam(model.parameters(), lr=1e-2)", "ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-2)"),
            (', "optimizer": optimizer.state_dict()', ""),
        ],
    ),
    "regression-lbfgs": (
        "regression",
        [
            ("torch.optim.Adam(model.parameters(), lr=1e-2)", "torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)"),
            ("for epoch in range(3):", "for epoch in range(10):"),
            (".split(20):", ".split(len(order)):"),
            (
                "prediction = model(train_inputs[indices])\nloss = loss_function(prediction, train_targets[indices])",
                """
                def closure(indices=indices):
                    optimizer.zero_grad()
                    loss = loss_function(model(train_inputs[indices]), train_targets[indices])
                    loss.backward()
                    return loss
                """,
            ),
            (
                "optimizer.zero_grad()\nloss.backward()\nnn.utils.clip_grad_norm_(model.parameters(), 1.0)\noptimizer.step()",
                "loss = optimizer.step(closure)",
            ),
        ],
    ),
    "regression-sum": (
        "regression",
        [("nn.MSELoss()", 'nn.MSELoss(reduction="sum")'), ("loss.backward()", "(loss / len(indices)).backward()")],
    ),
    "trainer-seeded-by-rank": ("trainer", [("torch.manual_seed(3)", "torch.manual_seed(3 + dist.get_rank())")]),
    "trainer-without-accumulation": ("trainer", [("accumulation: int = 2", "accumulation: int = 1")]),
    "trainer-accumulated-with-sync": ("trainer", [("if is_last else self.model.no_sync():", "if is_last else contextlib.nullcontext():")]),
    "trainer-worker": ("trainer", [("num_workers=0", "num_workers=1, persistent_workers=True")]),
    "trainer-unused": (
        "trainer",
        [
            ("DistributedDataParallel(model)", "DistributedDataParallel(model, find_unused_parameters=True)"),
            ("self.head = nn.Linear(width, 2)", "self.head = nn.Linear(width, 2)\nself.auxiliary = nn.Linear(width, 2)"),
        ],
    ),
    "language_model-untied": ("language_model", [("self.output.weight = self.embedding.weight", "")]),
    "language_model-equal-lengths": (
        "language_model",
        [("torch.randint(4, 13, (size,), generator=draws)", "torch.full((size,), 9)"), *MEAN_OF_RANK],
    ),
    "gan-spectral-norm": (
        "gan",
        [
            ("nn.Sequential(nn.Linear(2, 32)", "nn.Sequential(spectral_norm(nn.Linear(2, 32))"),
            ("from torch.nn.parallel", "from torch.nn.utils.parametrizations import spectral_norm\nfrom torch.nn.parallel"),
        ],
    ),
    "gan-three-critic-steps": (
        "gan",
        [
            ("for (real,) in loader:", "for step, (real,) in enumerate(loader):"),
            ("# Update G, through D.", "if step % 3:\n    continue"),
        ],
    ),
    "distill-averaged-model": (
        "distill",
        [
            ("from torch import nn", "from torch import nn\nfrom torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn"),
            ("MovingAverage(student)", "AveragedModel(student, multi_avg_fn=get_ema_multi_avg_fn(0.9)).eval()"),
            ("average.update(student)", "average.update_parameters(student)"),
            ("average.model(x)", "average(x)"),
            ("average.model.state_dict()", "average.module.state_dict()"),
        ],
    ),
    "distill-weighted": (
        "distill",
        [
            (
                "def main():",
                """
                class WeightedDistributedSampler(DistributedSampler):
                    def __init__(self, dataset, weights):
                        super().__init__(dataset)
                        self.weights = weights

                    def __iter__(self):
                        draws = torch.Generator().manual_seed(self.epoch)
                        indices = torch.multinomial(self.weights, self.total_size, replacement=True, generator=draws)
                        return iter(indices[self.rank :: self.num_replicas].tolist())


                def main():""",
            ),
            ("DistributedSampler(train_set)", "WeightedDistributedSampler(train_set, 1 / labels[:256].bincount()[labels[:256]])"),
        ],
    ),
    "finetune-backbone-later": (
        "finetune",
        [
            (
                "sampler.set_epoch(epoch)",
                """
                if epoch == 1:
                    model.module.backbone.requires_grad_(True)
                    model = DDP(model.module)
                    optimizer.add_param_group({"params": model.module.backbone.parameters(), "lr": 1e-4})
                sampler.set_epoch(epoch)
                """,
            ),
            BACKBONE_IN_GRAPH,
            ("patience=0)", "patience=3)"),
        ],
    ),
    "by_hand-flat": (
        "by_hand",
        [
            (
                "for param in model.parameters():\n    dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)\n    param.grad.data /= size",
                """
                gradients = [param.grad for param in model.parameters()]
                flat = torch.cat([gradient.flatten() for gradient in gradients]) / size
                dist.all_reduce(flat)
                for gradient, mean in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
                    gradient.copy_(mean.view_as(gradient))
                """,
            )
        ],
    ),
    "by_hand-scaled-loss": ("by_hand", [("loss.backward()", "(loss / size).backward()"), ("param.grad.data /= size", "")]),
    "by_hand-clipped": ("by_hand", [("optimizer.step()", "nn.utils.clip_grad_norm_(model.parameters(), 0.5)\noptimizer.step()")]),
    "fsdp-accumulated": (
        "fsdp",
        [
            ("for inputs, targets in loader:", "for step, (inputs, targets) in enumerate(loader):"),
            ("optimizer.zero_grad()", "model.set_requires_gradient_sync(step % 2 == 1)"),
            ("loss.backward()", "(loss / 2).backward()\nif step % 2 == 0:\n    continue"),
            ("optimizer.step()", "optimizer.step()\noptimizer.zero_grad()"),
        ],
    ),
    "horovod-compressed": ("horovod_digits", [("named_parameters=model", "compression=hvd.Compression.fp16, named_parameters=model")]),
    "horovod-predivided": ("horovod_digits", [("named_parameters=model", "gradient_predivide_factor=2.0, named_parameters=model")]),
    "horovod-accumulated": (
        "horovod_digits",
        [
            ("named_parameters=model", "backward_passes_per_step=2, named_parameters=model"),
            (
                "loss = F.nll_loss(model(data), target)\nloss.backward()",
                "for x, y in zip(data.split(6), target.split(6)):\n    (F.nll_loss(model(x), y) / 2).backward()",
            ),
        ],
    ),
    "horovod-clipped": (
        "horovod_digits",
        [
            (
                "loss.backward()\noptimizer.step()",
                """
                loss.backward()
                optimizer.synchronize()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                with optimizer.skip_synchronize():
                    optimizer.step()""",
            )
        ],
    ),
    "deepspeed-0": ("deepspeed_engine", [('{"stage": 1}', '{"stage": 0}')]),
    "deepspeed-2-accumulated": (
        "deepspeed_engine",
        [('{"stage": 1}', '{"stage": 2}'), ('accumulation_steps": 1', 'accumulation_steps": 2')],
    ),
}

# Of TrainCheck's table (its own names of reports), not here: lightning-thunder-725 (autocast that leaves functions out: the precision is
# another, which is none of the checks) and transformers-23723 (too long answers at inference).
WRONG = {
    "clipped-before-averaging": Wrong(
        "by_hand",
        [("average_gradients(model)\noptimizer", "nn.utils.clip_grad_norm_(model.parameters(), 0.1)\naverage_gradients(model)\noptimizer")],
        "gradients",
        "deepspeed-1801",
    ),
    "clipped-by-the-norm-of-each-rank": Wrong(
        "by_hand",
        [
            (
                "average_gradients(model)\noptimizer",
                """
                norm = nn.utils.get_total_norm([param.grad for param in model.parameters()])
                average_gradients(model)
                nn.utils.clip_grads_with_norm_(model.parameters(), 0.1, norm)
                optimizer""",
            )
        ],
        ("replicas", "gradients"),
        "deepspeed-1801",
    ),
    "experts-that-one-rank-skips": Wrong(
        "by_hand",
        [
            ("self.fc2 = nn.Linear(20, 20)", "self.experts = nn.ModuleList(nn.Linear(20, 20) for _ in range(2))"),
            ("F.relu(self.fc2(x))", "F.relu(self.experts[int(x.mean() > 0.41)](x))"),
            ("dist.all_reduce(param.grad", "if param.grad is None:\n    continue\ndist.all_reduce(param.grad"),
        ],
        ("gradients", "replicas"),
        "deepspeed-5794",
    ),
    "frozen-by-train-only": Wrong(
        "finetune",
        [
            BACKBONE_NOT_FROZEN,
            BACKBONE_IN_GRAPH,
            ("# Its statistics stay those of the pretraining.", "self.backbone.requires_grad_(False)"),
            ("DDP(Finetuned())", "DDP(Finetuned(), find_unused_parameters=True)"),
            ("torch.optim.AdamW(groups)", 'torch.optim.AdamW([*groups, {"params": model.module.backbone.parameters()}])'),
            ("model.train()\nfor", "if epoch:\n    model.train()\nfor"),
            ("optimizer.zero_grad()", "optimizer.zero_grad(set_to_none=False)"),
        ],
        "parameters",
        "mmpretrain-702",
    ),
    "initialized-by-the-first-batch": Wrong(
        "images",
        [
            (
                "self.drop = nn.Dropout(0.1)",
                "self.drop = nn.Dropout(0.1)\nself.scale, self.is_initialized = nn.Parameter(torch.ones(72)), False",
            ),
            (
                "return self.head(self.drop(x.flatten(1)))",
                """
                x = x.flatten(1)
                if self.training and not self.is_initialized:
                    self.scale.data = 1 / (x.detach().std(0) + 1e-3)
                    self.is_initialized = True
                return self.head(self.drop(self.scale * x))""",
            ),
        ],
        ("start", "replicas"),
        "pytorch-51800",
    ),
    "optimizer-state-behind-after-join": Wrong("uneven", [("torch.optim.SGD(", "torch.optim.Adagrad(")], "replicas"),
    "moved-off-the-device-and-back": Wrong(
        "regression",
        [
            (
                "model.train()",
                """
                if epoch == 1:
                    # The device's memory is needed for something else between two epochs.
                    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
                    model.to("meta")
                    net.load_state_dict(state, assign=True)
                    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
                model.train()""",
            )
        ],
        ("gradients", "replicas"),
        "pytorch-104336",
    ),
    "gradients-lost-on-the-way": Wrong(
        "by_hand",
        [
            (
                "param.grad.data /= size",
                "param.grad.data /= size\nif dist.get_rank() == 1 and torch.rand(()) < 0.05:\n    param.grad.zero_()",
            )
        ],
        ("replicas", "gradients"),
        "pytorch-84803",
    ),
    "weights-lost-on-one-rank": Wrong(
        "images",
        [("optimizer.step()", "optimizer.step()\nif step == 2 and dist.get_rank() == 1:\n    model.module.head.weight.data[0] = 0")],
        "replicas",
        "pytorch-96600",
    ),
    "activations-lost-on-one-rank": Wrong(
        "trainer",
        [
            (
                "return self.criterion(",
                'if self.rank == 1 and torch.rand(()) < 0.2:\n    batch["values"][0] = float("nan")\nreturn self.criterion(',
            ),
        ],
        "state",
        "baichuan2-86",
    ),
    "compiled-without-what-was-frozen": Wrong(
        "regression",
        [
            ("for epoch in range(3):", "updated = None\nfor epoch in range(3):"),
            (
                "nn.utils.clip_grad_norm_",
                """
                if epoch == 0:
                    net[0].weight.grad = net[0].bias.grad = None
                # What was frozen when the step was compiled stays out of it.
                updated = updated or {name for name, parameter in net.named_parameters() if parameter.grad is not None}
                for name, parameter in net.named_parameters():
                    if name not in updated:
                        parameter.grad = None
                nn.utils.clip_grad_norm_""",
            ),
        ],
        "parameters",
        "pytorch-115607",
    ),
    "all-but-the-norms-frozen": Wrong(
        "finetune",
        [
            (
                "for parameter in self.backbone.parameters():\n    parameter.requires_grad = False",
                'for name, parameter in self.named_parameters():\n    parameter.requires_grad = name.startswith("backbone.1")',
            ),
            BACKBONE_IN_GRAPH,
            ('{"params": model.module.adapter.parameters(), "lr": 1e-3}, ', ""),
        ],
        "parameters",
        "pytorch-forum-84911",
    ),
    "no-zero-grad": Wrong("images", [("optimizer.zero_grad()", "")], "gradients", "stackoverflow-60335387"),
    "workers-with-one-seed": Wrong(
        "trainer",
        [
            (
                'return {"values": self.values[index], "label": self.labels[index]}',
                'values = torch.from_numpy(np.random.randn(12, 4)).float()\nreturn {"values": values, "label": (values.mean() > 0).long()}',
            ),
            ("import torch.distributed as dist", "import numpy as np\nimport torch.distributed as dist"),
            ("num_workers=0", "num_workers=1, worker_init_fn=np.random.seed"),
        ],
        "samples",
        "stackoverflow-67180955",
    ),
    "initialized-again": Wrong(
        "images",
        [
            (
                "sampler = DistributedSampler(train_set)",
                """
                sampler = DistributedSampler(train_set)
                for layer in (model.module.conv, model.module.head):
                    layer.reset_parameters()""",
            )
        ],
        ("start", "random"),
        "transformers-17877",
    ),
    "dropout-in-evaluation": Wrong(
        "images", [("self.drop(x.flatten(1))", "F.dropout(x.flatten(1), 0.1)")], "evaluation", "transformers-33844"
    ),
    "batches-of-one-sample": Wrong(
        "trainer",
        [
            ("num_workers=0)", "collate_fn=collate)"),
            (
                "class Classifier",
                "def collate(samples):\n    return {name: value[None] for name, value in samples[0].items()}\n\n\nclass Classifier",
            ),
        ],
        "samples",
        "transformers-34204",
    ),
    "wrapped-in-every-other-step": Wrong(
        "images",
        [("model(images)", "(model if step % 2 == 0 else model.module)(images)")],
        ("gradients", "replicas"),
        "x-jxmnop-ddp-out-of-sync",
    ),
    "optimizer-of-the-unsharded": Wrong(
        "fsdp",
        [
            ("model = Encoder()", "model = Encoder()\noptimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)"),
            ("fully_shard(model, mesh=mesh)\noptimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)", "fully_shard(model, mesh=mesh)"),
        ],
        "parameters",
        "accelerate#2665",
    ),
    "wrapper-bypassed": Wrong("trainer", [("self.model(batch", "self.model.module(batch")], ("gradients", "replicas"), "OpenTSLM#49"),
    "set-epoch-swallowed": Wrong(
        "trainer",
        [
            (
                "class Classifier",
                """
                class Wrapped(DistributedSampler):
                    def __init__(self, sampler):
                        self.sampler = sampler

                    def __iter__(self):
                        return iter(self.sampler)

                    def __len__(self):
                        return len(self.sampler)


                class Classifier""",
            ),
            ("DistributedSampler(train_set, shuffle=True, seed=7)", "Wrapped(DistributedSampler(train_set, shuffle=True, seed=7))"),
        ],
        "samples",
        "Lightning#21454",
    ),
    "mean-of-each-rank": Wrong("language_model", MEAN_OF_RANK, "loss", "accelerate#3780"),
    "mean-of-each-micro-batch": Wrong(
        "language_model",
        [
            *MEAN_OF_RANK[:2],
            ("(loss * world_size / num_tokens).backward()", "num_passes += 1\n(loss / 2).backward()\nif num_passes % 2:\n    continue"),
            ("texts.epoch = epoch", "texts.epoch, num_passes = epoch, 0"),
            MEAN_OF_RANK[3],
        ],
        "loss",
        "Megatron-LM#7452",
    ),
    "accumulated-without-dividing": Wrong(
        "trainer", [("self.loss_of(batch) / self.config.accumulation", "self.loss_of(batch)")], ("loss", "gradients"), "DeepSpeed#5898"
    ),
    "divided-by-the-engine-too": Wrong(
        "deepspeed_engine",
        [('accumulation_steps": 1', 'accumulation_steps": 2'), ("engine.backward(loss)", "engine.backward(loss / 2)")],
        ("loss", "gradients"),
        "DeepSpeed#5898",
    ),
    "all-samples-on-each-rank": Wrong(
        "images", [("batch_size=args.batch_size, sampler=sampler)", "args.batch_size, shuffle=True)")], "samples", "itwinai#303"
    ),
    "start-not-broadcast": Wrong("by_hand", [("broadcast_start(model)\noptimizer", "optimizer")], ("start", "random")),
    "start-not-broadcast-horovod": Wrong(
        "horovod_digits", [("hvd.broadcast_parameters(model.state_dict(), root_rank=0)", "")], ("start", "random")
    ),
    "buffers-not-broadcast": Wrong(
        "by_hand",
        [
            ("[*model.parameters(), *model.buffers()]", "model.parameters()"),
            ("self.norm = ", 'self.register_buffer("mask", (torch.rand(5) > 0.3).float())\nself.norm = '),
            ("self.fc1(x)", "self.fc1(x * self.mask)"),
        ],
        "start",
    ),
    "initialized-by-rank-sharded": Wrong(
        "fsdp",
        [("model = Encoder()", "torch.manual_seed(rank)\nmodel = Encoder()\nnn.init.orthogonal_(model.embed.weight)")],
        ("random", "start"),
    ),
    "summed": Wrong("by_hand", [("param.grad.data /= size", "")], "gradients"),
    "summed-horovod": Wrong("horovod_digits", [("named_parameters=model", "op=hvd.Sum, named_parameters=model")], "gradients"),
    "loss-times-size-sharded": Wrong("fsdp", [("loss.backward()", "(loss * world_size).backward()")], ("gradients", "loss")),
    "averaged-twice": Wrong("by_hand", [("(param.grad.data, op=dist.ReduceOp.SUM)", "(param.grad.data.div_(size))")], "gradients"),
    "loss-by-size": Wrong("images", [("loss.backward()", "(loss / dist.get_world_size()).backward()")], ("loss", "gradients"), "planted"),
    "one-layer-not-averaged": Wrong(
        "by_hand",
        [
            (
                "in model.parameters():\n    dist.all_reduce(param.grad",
                "in [*model.fc1.parameters(), *model.norm.parameters(), *model.fc3.parameters()]:\n    dist.all_reduce(param.grad",
            )
        ],
        ("gradients", "replicas"),
    ),
    "no-sync-in-every-step": Wrong("trainer", [("contextlib.nullcontext() if is_last else ", "")], ("gradients", "replicas")),
    "not-wrapped-horovod": Wrong(
        "horovod_digits",
        [("optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())", "")],
        ("gradients", "replicas"),
    ),
    "engine-bypassed": Wrong(
        "deepspeed_engine",
        [
            ("loss = criterion(engine(left, right), target)", "loss = criterion(model(left, right), target)"),
            ("engine.backward(loss)\nengine.step()", "loss.backward()\nplain.step()\nplain.zero_grad()"),
            ("engine, optimizer,", "plain = torch.optim.AdamW(model.parameters(), lr=2e-3)\nengine, optimizer,"),
            ('{"stage": 1}', '{"stage": 0}'),
        ],
        ("gradients", "replicas"),
    ),
    "clamped-as-they-come": Wrong(
        "regression",
        [
            (
                "loss_function = nn",
                "for parameter in net.parameters():\n    parameter.register_hook(lambda grad: grad.clamp(-0.01, 0.01))\nloss_function = nn",
            )
        ],
        "gradients",
        "planted",
    ),
    "zeroed-before-the-step": Wrong(
        "images",
        [("optimizer.zero_grad()", ""), ("optimizer.step()", "optimizer.zero_grad()\noptimizer.step()")],
        ("parameters", "gradients"),
    ),
    "same-shard": Wrong("by_hand", [("[rank::size]", "[0::size]")], "samples"),
    "same-shard-without-loader": Wrong("regression", [("[rank::world_size]", "[::world_size]")], "samples"),
    "same-texts": Wrong("language_model", [("order[self.rank :: self.world_size]", "order[:: self.world_size]")], "samples"),
    "too-many-replicas": Wrong(
        "images", [("DistributedSampler(train_set)", "DistributedSampler(train_set, num_replicas=4, rank=rank)")], "samples"
    ),
    "one-replica-horovod": Wrong("horovod_digits", [("num_replicas=hvd.size(), rank=hvd.rank()", "num_replicas=1, rank=0")], "samples"),
    "no-set-epoch": Wrong("images", [("sampler.set_epoch(epoch)", "")], "samples"),
    "same-order-of-texts": Wrong("language_model", [("texts.epoch = epoch", "")], "samples"),
    "same-order-without-loader": Wrong("regression", [("manual_seed(epoch)", "manual_seed(0)")], "samples"),
    "group-left-out": Wrong("finetune", [('{"params": model.module.adapter.parameters(), "lr": 1e-3}, ', "")], "parameters"),
    "head-replaced-after-the-optimizer": Wrong(
        "finetune",
        [
            (
                "model = DDP(Finetuned())",
                "net = Finetuned()\nadapter, head = net.adapter, net.head\nnet.head = nn.Linear(24, 2)\nmodel = DDP(net)",
            ),
            ("model.module.adapter.parameters()", "adapter.parameters()"),
            ("model.module.head.parameters()", "head.parameters()"),
        ],
        "parameters",
    ),
    "layer-detached": Wrong(
        "images",
        [("DDP(Net())", "DDP(Net(), find_unused_parameters=True)"), ("self.drop(x.flatten(1))", "self.drop(x.detach().flatten(1))")],
        "parameters",
    ),
    "generator-never-stepped": Wrong("gan", [("optimizerG.step()", "")], "parameters"),
    "optimizer-of-the-other-network": Wrong(
        "gan", [("optimizerG = torch.optim.Adam(netG.parameters()", "optimizerG = torch.optim.Adam(netD.parameters()")], "parameters"
    ),
    "step-that-does-nothing": Wrong(
        "regression",
        [("for epoch in range(3):", "optimizer.step = lambda closure=None: None\nfor epoch in range(3):")],
        "parameters",
        "planted",
    ),
    "warm-up-that-never-starts": Wrong("trainer", [("self.scheduler.step()", "")], ("parameters", "loss")),
    "rate-by-rank": Wrong("images", [("lr=args.lr,", "lr=args.lr * (rank + 1),")], ("loss", "replicas")),
    "scheduler-twice": Wrong("language_model", [("scheduler.step()", "scheduler.step()\nscheduler.step()")], "loss"),
    "unequal-batches": Wrong(
        "by_hand",
        [(".tolist()[rank::size]", ".tolist()[80 * rank :][: 80 * (2 - rank)]"), ("batch_size=12", "batch_size=8 if rank else 16")],
        "loss",
    ),
    "scheduler-before-the-optimizer": Wrong(
        "images",
        [("train(model, train_loader, optimizer)\nscheduler.step()", "scheduler.step()\ntrain(model, train_loader, optimizer)")],
        "state",
    ),
    "evaluated-in-train-mode": Wrong("images", [("model.eval()", "")], "evaluation"),
    "trained-in-eval-mode": Wrong(
        "images",
        [("model.train()", ""), ("sampler.set_epoch(epoch)", "if epoch == 0:\n    model.train()\nsampler.set_epoch(epoch)")],
        "evaluation",
    ),
    "average-never-updated": Wrong("distill", [("average.update(student)", "")], "evaluation"),
    "stale-copy-saved": Wrong(
        "images",
        [
            ("model = DDP(Net())", "model = DDP(Net())\nbest = copy.deepcopy(model.module)"),
            ("torch.save(model.module.state_dict()", "torch.save(best.state_dict()"),
            ("import argparse", "import argparse\nimport copy"),
        ],
        "evaluation",
    ),
    "tested-on-training-samples": Wrong(
        "finetune", [("TensorDataset(x[240:], y[240:])", "TensorDataset(x[180:240], y[180:240])")], "evaluation", "planted"
    ),
    "split-by-rank": Wrong(
        "images", [("[192, 64])", "[192, 64], generator=torch.Generator().manual_seed(rank))")], ("evaluation", "samples")
    ),
    "buffer-of-the-evaluation": Wrong(
        "by_hand",
        [
            ("self.norm = ", 'self.register_buffer("center", torch.zeros(5))\nself.norm = '),
            ("x = F.relu", "if not self.training:\n    self.center += 0.5 * (x.mean(0) - self.center)\nx = F.relu"),
            ("self.fc1(x)", "self.fc1(x - self.center)"),
        ],
        "evaluation",
        "planted",
    ),
    "dropout-with-one-seed": Wrong("images", [("manual_seed(100 + rank)", "manual_seed(100)")], "random"),
    "dropout-with-one-seed-sharded": Wrong("fsdp", [("torch.manual_seed(1 + rank)", "")], "random"),
    "skipped-for-ever": Wrong(
        "images",
        [*HALF, ("return TensorDataset", "images[:, :, 0] = 1\nimages = (images - images.mean(0)) / images.std(0)\nreturn TensorDataset")],
        "state",
    ),
    "nan-on-one-rank": Wrong(
        "by_hand",
        [("for data, target in train_set:", "for data, target in train_set:\n    if rank == 1:\n        data[:, 4] /= torch.zeros(())")],
        "state",
    ),
}
