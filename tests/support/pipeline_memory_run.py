"""Measures the peak of the tensors of each rank of a pipeline in a step.

python -m tests.support.pipeline_memory_run FOLDER, under an MPI launcher. Each rank writes FOLDER/RANK.json: {name of the backend:
{"plain" or "recomputed": bytes}}.
"""

import dataclasses
import json
import sys
import weakref
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from common import workloads
from common.backends import settings_of
from common.config import Settings
from common.cost.memory_forecast import Training
from common.model.families import Decoder
from common.process.ranks import from_environment
from frameworks.shared.pytorch import models, pipeline, process_group, steps

NAMES = ("pipeline", "pipeline@gpipe", "pipeline@interleaved", "pipeline@zero_bubble")
TRAINING = Training(Decoder(128, 4, 6, 64), 16, microbatches=8, device="cpu")


class Live(TorchDispatchMode):
    """Counts the bytes of the tensors that are alive: `now`, and the `peak`. PyTorch's MemTracker does not take pipelines (2.13)."""

    def __init__(self):
        super().__init__()
        self.now = self.peak = 0
        self.seen = set()

    def add(self, tensor):
        storage = tensor.untyped_storage()
        key, size_bytes = storage._cdata, storage.nbytes()
        if key not in self.seen:
            self.seen.add(key)
            self.now += size_bytes
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self.remove, key, size_bytes)

    def remove(self, key, size_bytes):
        self.seen.remove(key)
        self.now -= size_bytes

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for value in tree_iter(result):
            if isinstance(value, torch.Tensor):
                self.add(value)
        return result


def peak(name, recompute, ranks):
    """The most bytes of tensors of this rank in its second step."""
    settings = dataclasses.replace(
        settings_of(name, Settings()), optimizer="adam", learning_rate=0.1, recompute=recompute, microbatches=TRAINING.microbatches
    )
    device, model = torch.device("cpu"), TRAINING.model
    module = models.build(settings, device, ranks)
    stages = pipeline.Pipeline(settings, module, device)
    optimizer = steps.optimizer_for(settings, module)
    inputs = torch.zeros(TRAINING.batch_size, model.context, dtype=torch.int64)

    def step():
        optimizer.zero_grad()
        stages.step(inputs, inputs, torch.ones(inputs.shape))
        optimizer.step()

    step()
    optimizer.zero_grad()
    live = Live()
    state = [value for of_parameter in optimizer.state.values() for value in of_parameter.values()]
    infos = [info for stage in stages.stages for of_microbatch in stage.args_recv_info.values() for info in of_microbatch]
    received = [info.buffer for info in infos if hasattr(info, "buffer")]
    for tensor in (*module.parameters(), *state, *received):
        if torch.is_tensor(tensor):
            live.add(tensor)
    with live:
        step()
    return live.peak


def main():
    ranks = from_environment()
    torch.set_num_threads(1)
    process_group.begin(Settings(), ranks, torch.device("cpu"))
    workloads.WORKLOADS["cnn"] = workloads.WORKLOADS["cnn"]._replace(model=TRAINING.model)
    kinds = {"plain": False, "recomputed": True}
    peaks = {name: {kind: peak(name, recompute, ranks) for kind, recompute in kinds.items()} for name in NAMES}
    Path(sys.argv[1], f"{ranks.rank}.json").write_text(json.dumps(peaks))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
