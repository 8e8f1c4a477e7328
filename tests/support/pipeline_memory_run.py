"""Measures the peak of the tensors of each rank of a pipeline in a step.

python -m tests.support.pipeline_memory_run FOLDER, under an MPI launcher. Each rank writes FOLDER/RANK.json: {name of the backend:
bytes}.
"""

import dataclasses
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from common import workloads
from common.backends import settings_of
from common.config import Settings
from common.model.decoder import Decoder
from common.ranks.launcher_variables import from_environment
from frameworks.shared.pytorch import modules, pipeline_stages, process_group, steps
from frameworks.shared.pytorch.activations import Live

NAMES = ("pipeline", "pipeline@gpipe")
MODEL = Decoder(128, 4, 6, 64)
SIZES = {"batch_size": 16, "microbatches": 8}


def peak(name, ranks):
    """The most bytes of tensors of this rank in its second step."""
    settings = dataclasses.replace(settings_of(name, Settings()), optimizer="adam", learning_rate=0.1, **SIZES)
    device = torch.device("cpu")
    module = modules.build(settings, device, ranks)
    pipeline = pipeline_stages.Pipeline(settings, module, device)
    optimizer = steps.optimizer_for(settings, module)
    inputs = torch.zeros(settings.batch_size, MODEL.context, dtype=torch.int64)

    def step():
        optimizer.zero_grad()
        pipeline.step(inputs, inputs, torch.ones(inputs.shape))
        optimizer.step()

    step()
    optimizer.zero_grad()
    live = Live([])
    state = [value for of_parameter in optimizer.state.values() for value in of_parameter.values()]
    infos = [info for of_microbatch in pipeline.stage.args_recv_info.values() for info in of_microbatch]
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
    workloads.WORKLOADS["cnn"] = workloads.WORKLOADS["cnn"]._replace(model=MODEL)
    peaks = {name: peak(name, ranks) for name in NAMES}
    Path(sys.argv[1], f"{ranks.rank}.json").write_text(json.dumps(peaks))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
