"""Pipelines of stages, by PyTorch's pipelining, and data parallelism over the pipelines, over Gloo on CPUs and NCCL on GPUs."""  # backend

import torch.distributed as dist  # backend
from torch.nn.utils import parameters_to_vector, vector_to_parameters  # backend

from common.backends import Backend
from common.process.ranks import from_environment
from common.process.rendezvous import agree_on_master  # backend
from common.training.program import main
from frameworks.shared.pytorch import pipeline, process_group, pytorch  # backend

BACKEND = Backend(
    model_parallel="stages", pipelined=True, untied=True, by_default=False,
    change="cut the model into stages; a schedule runs the passes of a step; average the gradients of each stage",
)  # fmt: skip  # backend


class Trainer:
    def __init__(self, settings):
        self.ranks = from_environment()
        self.device = pytorch.pick_device(settings, self.ranks)
        self.accumulate = settings.accumulate
        agree_on_master(self.ranks, settings.host_suffix)  # backend
        self.transport = process_group.transport_of(self.device, settings)  # backend
        dist.init_process_group(self.transport, rank=self.ranks.rank, world_size=self.ranks.size)  # backend
        self.module = self.model = pytorch.build(settings, self.device, self.ranks)
        own_pipeline, self.replicas = pipeline.groups(self.ranks, settings.stages)  # backend
        self.pipeline = pipeline.Pipeline(settings, self.module, self.device, own_pipeline)  # backend
        self.optimizer = pytorch.optimizer_for(settings, self.module)

    @staticmethod
    def device_problem(device):
        return pytorch.device_problem(device)

    def describe_device(self):
        return pytorch.describe_device(self.device)

    def train_epoch(self, batches, observe):
        self.model.train()
        for micro_batches, learning_rate in pytorch.steps(batches, self.accumulate, self.device):
            pytorch.set_learning_rate(self.optimizer, learning_rate)
            self.optimizer.zero_grad()
            losses = []
            for inputs, targets, weights, is_last in micro_batches:
                loss = self.pipeline.step(inputs, targets, weights)  # backend
                losses.append(loss.detach())
            self.average_gradients()  # backend
            self.optimizer.step()
            observe(sum(losses))

    def average_gradients(self):  # backend
        gradients = [parameter.grad for parameter in self.module.parameters()]  # backend
        total = parameters_to_vector(gradients)  # backend
        dist.all_reduce(total, group=self.replicas)  # backend
        vector_to_parameters(total / self.replicas.size(), gradients)  # backend

    def evaluate(self, batches):
        return pipeline.evaluate(self.pipeline, self.module, batches, self.device)  # backend

    def sum(self, values):
        return process_group.summed(values, self.device)  # backend

    def state(self, with_optimizer_state=True):
        return pipeline.state(self, with_optimizer_state)  # backend

    def restore(self, state):
        pytorch.restore(self.module, self.optimizer, state)

    def memory(self):
        return pipeline.memory(self.pipeline, self.module, self.optimizer)  # backend

    def communication(self):
        return pipeline.communication(self, "average_gradients")  # backend

    def close(self):
        dist.destroy_process_group()  # backend


if __name__ == "__main__":
    main(Trainer, __file__)
