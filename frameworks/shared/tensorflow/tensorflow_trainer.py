"""What no library changes in a backend on TensorFlow: its device, and what is done with a model and its optimizer."""

import contextlib
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import final

import numpy as np
import tensorflow as tf

from common.config import Settings
from common.errors import UserError
from common.ranks.binding import gpu_for
from common.ranks.gpus import Device, GpuMemory
from common.ranks.launcher_variables import Ranks, from_environment
from common.trainer import POINTS, Batches, Schedule, TensorBytes, Totals, Trainer
from frameworks.shared.tensorflow import losses, variables
from frameworks.shared.tensorflow.models import Model
from frameworks.shared.tensorflow.optimizer import Optimizer


def device_problem(device: str) -> str | None:
    """Returns why TensorFlow cannot compute on `cpu` or `cuda` here; None if it can."""
    if device == "cuda" and not tf.test.is_built_with_cuda():
        return "this TensorFlow has no CUDA"
    return "TensorFlow finds no GPU" if device == "cuda" and not tf.config.list_physical_devices("GPU") else None


def describe_device(gpu: int | None, nccl: str | None) -> Device:
    """Describes the device of a rank for the record: `gpu` is what pick_device returned, `nccl` the version that communicates."""
    build = tf.sysconfig.get_build_info()
    versions = build.get("cuda_version"), build.get("cudnn_version")
    num_threads = tf.config.threading.get_intra_op_parallelism_threads()
    if gpu is None:
        return Device("cpu", None, *versions, nccl, product, None, None, num_threads)
    # This process sees one GPU, 0 for TensorFlow, which does not count what its allocator reserves.
    memory = GpuMemory(
        lambda: tf.config.experimental.reset_memory_stats("GPU:0"),
        lambda: (tf.config.experimental.get_memory_info("GPU:0")["peak"], None),
    )
    return Device("cuda", gpu, *versions, nccl, product, None, memory, num_threads)


def product(precision: str, size: int) -> Callable[[], None]:
    """Returns the `product` of a Device."""
    dtype = {"fp64": tf.float64, "bf16": tf.bfloat16}.get(precision, tf.float32)
    # A GPU multiplies constants faster than other numbers.
    matrix = tf.random.normal((size, size), dtype=dtype)

    def multiply() -> None:
        tf.matmul(matrix, matrix)[0, 0].numpy()

    return multiply


def pick_device(settings: Settings, ranks: Ranks) -> int | None:
    """Returns CUDA's number of this rank's GPU, None on the CPU; also sets TensorFlow's number of threads, precision and GPU.

    Must be called before any other use of TensorFlow. Raises UserError if CUDA is requested but not available, or if a node has more
    ranks than GPUs.
    """
    tf.config.threading.set_intra_op_parallelism_threads(settings.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    # With TF32, fp32 on a GPU would have a lower precision than on a CPU.
    tf.config.experimental.enable_tensor_float_32_execution(settings.precision == "tf32")
    problem = device_problem("cuda")
    if settings.device == "cuda" and problem:
        raise UserError(f"--device cuda, but {problem}; use --device cpu, or set up with TANDEM_DEVICE=cuda on a node with GPUs")
    if settings.device == "cpu" or problem:
        tf.config.set_visible_devices([], "GPU")
        return None
    gpus = tf.config.list_physical_devices("GPU")
    index = gpu_for(len(gpus), ranks)
    tf.config.set_visible_devices([gpus[index]], "GPU")
    return index


class TensorFlowTrainer(Trainer):
    """A backend on TensorFlow. Its __init__ calls this one and makes `module`, which has the parameters, and `optimizer`."""

    device_problems = (device_problem,)
    # The version of the NCCL that the library communicates with, if it does.
    nccl: str | None = None
    module: Model
    optimizer: Optimizer

    @abstractmethod
    def __init__(self, settings: Settings) -> None:
        self.ranks = from_environment()
        self.gpu = pick_device(settings, self.ranks)
        self.accumulate, self.dropout = settings.accumulate, settings.dropout

    @final
    def describe_device(self) -> Device:
        return describe_device(self.gpu, self.nccl)

    @final
    def loss(self, inputs: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Returns the weighted loss of a micro-batch, with which every backend with a loop of its own begins its backward pass."""
        return losses.weighted_loss(self.module.forward(self.module.parameters, inputs, self.dropout), targets, weights)

    @final
    def profiled(self, folder: Path, schedule: Schedule) -> AbstractContextManager[Callable[[], None]]:
        # TensorFlow's own is not used: beside collectives of a strategy it crashes (2.21).
        return contextlib.nullcontext(lambda: None)

    @final
    def evaluate(self, batches: Batches) -> Totals:
        return losses.evaluate(self.module, batches)

    @final
    def state(self, with_optimizer_state: bool = True) -> dict[str, np.ndarray]:
        return variables.gather(self.module.layers, self.module.parameters, self.optimizer if with_optimizer_state else None)

    @final
    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        variables.restore(self.module.layers, self.module.parameters, self.optimizer, state)

    @final
    def memory(self) -> AbstractContextManager[Mapping[str, TensorBytes]]:
        parameters, state = (
            sum(variable.shape.num_elements() * variable.dtype.size for variable in by_name.values())
            for by_name in (self.module.parameters, self.optimizer.state)
        )
        gradients = sum(self.optimizer.gradient_bytes.values())
        return contextlib.nullcontext(
            {point: TensorBytes(parameters, gradients if point == "after_backward" else 0, state) for point in POINTS}
        )


def remove_generated_files() -> None:
    """Removes what AutoGraph wrote of Horovod's functions into the temporary folder, as it would itself at the end of the interpreter."""
    for name, module in list(sys.modules.items()):
        if name.startswith("__autograph_generated_file") and module.__file__:
            Path(module.__file__).unlink(missing_ok=True)
