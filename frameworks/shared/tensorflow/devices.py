"""The device of a rank in TensorFlow."""

from collections.abc import Callable

import tensorflow as tf

from common.config import Settings
from common.errors import UserError
from common.ranks.binding import gpu_for
from common.ranks.gpus import Device, GpuMemory
from common.ranks.launcher_variables import Ranks


def device_problem(device: str) -> str | None:
    """Returns why TensorFlow cannot compute on `cpu` or `cuda` here; None if it can."""
    if device == "cuda" and not tf.test.is_built_with_cuda():
        return "this TensorFlow has no CUDA"
    return "TensorFlow finds no GPU" if device == "cuda" and not tf.config.list_physical_devices("GPU") else None


def describe_device(gpu: int | None, nccl: str | None) -> Device:
    """Describes the device of a rank for the record: `gpu` is what pick_device returned, `nccl` the version that communicates."""
    build = tf.sysconfig.get_build_info()
    versions = build.get("cuda_version"), build.get("cudnn_version")
    memory = None if gpu is None else gpu_memory()
    num_threads = tf.config.threading.get_intra_op_parallelism_threads()
    return Device("cpu" if gpu is None else "cuda", gpu, tf.test.is_built_with_cuda(), *versions, nccl, product, None, memory, num_threads)


def product(precision: str, size: int) -> Callable[[], None]:
    """Returns the `product` of a Device."""
    dtype = {"fp64": tf.float64, "bf16": tf.bfloat16}.get(precision, tf.float32)
    # A GPU multiplies constants faster than other numbers.
    matrix = tf.random.normal((size, size), dtype=dtype)

    def multiply() -> None:
        tf.matmul(matrix, matrix)[0, 0].numpy()

    return multiply


def gpu_memory() -> GpuMemory:
    """Returns the GpuMemory of this process, which sees one GPU, 0 for TensorFlow, and does not count what the allocator reserves."""
    return GpuMemory(
        lambda: tf.config.experimental.reset_memory_stats("GPU:0"),
        lambda: (tf.config.experimental.get_memory_info("GPU:0")["peak"], None),
    )


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
