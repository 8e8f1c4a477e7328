"""Scripts that train wrongly."""

from typing import NamedTuple

from tests.launch.auditing.editing import BACKBONE_IN_GRAPH, BACKBONE_NOT_FROZEN, CLOSURE, HALF, MEAN_OF_RANK


class Wrong(NamedTuple):
    """A script that trains wrongly: `check` names what is wrong, or what else is as true; `source` is the report that it rebuilds."""

    style: str
    edits: list[tuple[str, str]]
    check: str | tuple[str, ...]
    source: str = ""


# Of TrainCheck's table (its own names of reports), not here: lightning-thunder-725 (autocast that leaves functions out: the precision is
# another, which is none of the checks) and transformers-23723 (too long answers at inference).
WRONG = {
    "clipped-before-averaging": Wrong(
        "by_hand",
        [("average_gradients(model)\noptimizer", "nn.utils.clip_grad_norm_(model.parameters(), 0.1)\naverage_gradients(model)\noptimizer")],
        "gradients",
        "deepspeed-1801",
    ),
    "closure-without-zero": Wrong(
        "regression", [*CLOSURE[1:], (CLOSURE[0][0], CLOSURE[0][1].replace("optimizer.zero_grad()", "pass"))], "gradients"
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
