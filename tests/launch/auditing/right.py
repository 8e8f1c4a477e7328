"""Scripts that train right: the styles, and (style, edits) of them."""

from tests.launch.auditing.editing import BACKBONE_IN_GRAPH, CLOSURE, HALF, MEAN_OF_RANK

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
    "images-both-evaluated": ("images", [("accuracy = ", "evaluate(model, train_loader)\naccuracy = ")]),
    "images-attacked": (
        "images",
        [
            (
                "optimizer.zero_grad()",
                """
                model.eval()
                attacked = images.clone().requires_grad_()
                (direction,) = torch.autograd.grad(F.cross_entropy(model(attacked), labels), attacked)
                model.train()
                optimizer.zero_grad()
                """,
            ),
            ("F.cross_entropy(model(images), labels)", "F.cross_entropy(model(images + 0.01 * direction.sign()), labels)"),
        ],
    ),
    "images-attacked-by-a-backward-pass": (
        "images",
        [
            (
                "optimizer.zero_grad()",
                """
                model.eval()
                attacked = images.clone().requires_grad_()
                F.cross_entropy(model(attacked), labels).backward()
                images = images + 0.01 * attacked.grad.sign()
                model.train()
                optimizer.zero_grad()
                """,
            )
        ],
    ),
    "images-wrapped-optimizer": (
        "images",
        [
            (
                "def make_data():",
                """
                class Wrapper(torch.optim.Optimizer):
                    def __init__(self, optimizer):
                        self.optimizer, self.param_groups, self.defaults = optimizer, optimizer.param_groups, optimizer.defaults

                    def step(self, closure=None):
                        return self.optimizer.step(closure)

                    def zero_grad(self, set_to_none=True):
                        self.optimizer.zero_grad(set_to_none)


                def make_data():
                """,
            ),
            ("torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)", "Wrapper(torch.optim.SGD(model.parameters(), lr=args.lr))"),
        ],
    ),
    "images-averaged-weights": (
        "images",
        [
            ("def make_data():", "from torch.optim.swa_utils import AveragedModel, update_bn\n\ndef make_data():"),
            ("scheduler = ", "averaged = AveragedModel(model.module)\nscheduler = "),
            (
                "accuracy = evaluate(model, test_loader)",
                "accuracy = evaluate(model, test_loader)\naveraged.update_parameters(model.module)",
            ),
            (
                "dist.destroy_process_group()",
                "update_bn(train_loader, averaged)\nevaluate(averaged, test_loader)\ndist.destroy_process_group()",
            ),
        ],
    ),
    "images-best-on-rank-0": (
        "images",
        [
            (
                "scheduler.step()",
                "scheduler.step()\nif epoch == 0:\n    best = {name: value.clone() for name, value in model.module.state_dict().items()}",
            ),
            ("torch.save(model", "model.module.load_state_dict(best)\ntorch.save(model"),
        ],
    ),
    "images-tried-before": (
        "images",
        [
            ("range(args.epochs):", "[0, *range(args.epochs)]:"),
            (
                "sampler.set_epoch(epoch)",
                "if not epoch:\n    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)\nsampler.set_epoch(epoch)",
            ),
            ("scheduler.step()", ""),
        ],
    ),
    "images-caught": (
        "images",
        [("loss = F", "try:\n    F.cross_entropy(images, labels[:3])\nexcept (RuntimeError, ValueError):\n    pass\nloss = F")],
    ),
    "regression-closure": ("regression", CLOSURE),
    "regression-uneven": (
        "regression",
        [
            ("from torch import nn", "from torch import nn\nfrom torch.distributed.algorithms.join import Join"),
            ("order[rank::world_size].split(20):", "(order[:240] if rank else order[240:]).split(20):"),
            ("order = ", "join = Join([model])\njoin.__enter__()\norder = "),
            ("model.eval()", "join.__exit__(None, None, None)\nmodel.eval()"),
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
            *CLOSURE,
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
    "language_model-scheduler-that-steps-for-each-rank": (
        "language_model",
        [
            (
                "def main():",
                """
                class Scheduler:
                    def __init__(self, scheduler):
                        self.scheduler = scheduler

                    def step(self):
                        for _ in range(2):
                            self.scheduler.step()


                def main():
                """,
            ),
            (
                "torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=24)",
                "Scheduler(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 48))",
            ),
        ],
    ),
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
    "by_hand-averaged-now-and-then": (
        "by_hand",
        [
            ("for data, target in train_set:", "for step, (data, target) in enumerate(train_set):"),
            (
                "average_gradients(model)\noptimizer.step()",
                """
                optimizer.step()
                if step % 3 == 2:
                    for param in model.parameters():
                        dist.all_reduce(param.data)
                        param.data /= size
                """,
            ),
        ],
    ),
    "by_hand-inner-step": (
        "by_hand",
        [
            (
                "loss = F.nll_loss(model(data), target)",
                """
                names, parameters = zip(*model.named_parameters())
                gradients = torch.autograd.grad(F.nll_loss(model(data), target), parameters, create_graph=True)
                inner = {name: value - 0.01 * gradient for name, value, gradient in zip(names, parameters, gradients)}
                loss = F.nll_loss(torch.func.functional_call(model, inner, (data,)), target)
                """,
            )
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
    "by_hand-named-arguments": (
        "by_hand",
        [("loss = F.nll_loss(model(data), target)", "loss = F.nll_loss(input=model(data), target=target)")],
    ),
    "by_hand-scaled-loss": ("by_hand", [("loss.backward()", "(loss / size).backward()"), ("param.grad.data /= size", "")]),
    "by_hand-scaled-loss-of-its-own": (
        "by_hand",
        [
            ("loss = F.nll_loss(model(data), target)", "loss = -model(data).gather(1, target[:, None]).mean() / size"),
            ("param.grad.data /= size", ""),
        ],
    ),
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
