"""DeepSpeed's CIFAR example: deepspeed.initialize with the training data, engine, engine.backward, engine.step; ZeRO's stage 1."""

import os

import deepspeed
import torch
from torch import nn

from common.process.rendezvous import agree_on_master
from tests.bench.vendor_loops import shared, torch_parts


def train(work):
    torch.set_num_threads(work.settings.threads)
    agree_on_master(work.ranks)
    ranks = work.ranks
    os.environ |= {"RANK": str(ranks.rank), "WORLD_SIZE": str(ranks.size), "LOCAL_RANK": str(ranks.local_rank)}
    # It would be compiled at its first use, for a minute, and by all ranks at once.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    torch.manual_seed(0)
    net = torch_parts.Net()
    configuration = {
        "train_micro_batch_size_per_gpu": work.settings.batch_size,
        "optimizer": {"type": "SGD", "params": {"lr": work.learning_rate, "momentum": work.settings.momentum}},
        # DeepSpeed's own value is 1.0; ours does not clip.
        "gradient_clipping": 0.0,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 2000,
    }
    engine, _, loader, _ = deepspeed.initialize(
        model=net, model_parameters=net.parameters(), training_data=torch_parts.dataset(work), config=configuration
    )
    criterion = nn.CrossEntropyLoss()

    def train_epoch(_):
        for inputs, labels in loader:
            loss = criterion(engine(inputs), labels)
            engine.backward(loss)
            engine.step()

    shared.measure(work, train_epoch)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    shared.main(train)
