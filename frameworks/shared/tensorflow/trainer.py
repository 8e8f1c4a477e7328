"""What no library changes in a backend on TensorFlow: its device, and what is done with a model and its optimizer."""

from abc import abstractmethod
from typing import final

from common.process.ranks import from_environment
from common.trainer import Trainer
from frameworks.shared.tensorflow import tensorflow


class TensorFlowTrainer(Trainer):
    """A backend on TensorFlow.

    Its __init__ calls this one and makes `module`, a tensorflow.Model with the parameters, and `rule`, the tensorflow.Optimizer that
    updates them.
    """

    device_problems = (tensorflow.device_problem,)
    # The version of the NCCL that the library communicates with, if it does.
    nccl = None

    @abstractmethod
    def __init__(self, settings):
        self.ranks = from_environment()
        self.gpu = tensorflow.pick_device(settings, self.ranks)

    @final
    def describe_device(self):
        return tensorflow.describe_device(self.gpu, self.nccl)

    @final
    def evaluate(self, batches):
        return tensorflow.evaluate(self.module, batches)

    @final
    def state(self, with_optimizer_state=True):
        return tensorflow.state(self.module, self.rule if with_optimizer_state else None)

    @final
    def restore(self, state):
        tensorflow.restore(self.module, self.rule, state)

    @final
    def memory(self):
        return tensorflow.memory(self.module, self.rule)
