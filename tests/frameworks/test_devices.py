"""What backends say of the devices that they lack and of the one that they use. What libraries find on a GPU node is made up."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from common.ranks.gpus import Device
from common.ranks.launcher_variables import Ranks
from common.trainer import Batch
from frameworks.shared.horovod import horovod
from tests.support.mistakes import refused

pytestmark = pytest.mark.usefixtures("frameworks")
tensorflow = devices = steps = None

SETTINGS = SimpleNamespace(device="cuda", threads=1, precision="fp32", mkl_kernels="default")
GPU_1 = torch.device("cuda", 1)


@pytest.fixture
def find(monkeypatch):
    """A function that makes both frameworks find a number of GPUs; None: they are built without CUDA."""

    def present(num_gpus):
        for owner, name, value in (
            (torch.backends.cuda, "is_built", num_gpus is not None),
            (torch.cuda, "device_count", num_gpus or 0),
            (torch.cuda.nccl, "version", (2, 27, 3)),
            (torch.backends.cudnn, "version", 91002),
            (tensorflow.losses.tf.test, "is_built_with_cuda", num_gpus is not None),
            (
                tensorflow.losses.tf.sysconfig,
                "get_build_info",
                {"cuda_version": "12.5.1", "cudnn_version": "9"} if num_gpus is not None else {},
            ),
        ):
            monkeypatch.setattr(owner, name, lambda value=value: value)
        monkeypatch.setattr(tensorflow.losses.tf.config, "list_physical_devices", lambda _: ["a GPU"] * (num_gpus or 0))
        # They cannot be set once TensorFlow has computed, in another test of this process.
        for name in ("set_intra_op_parallelism_threads", "set_inter_op_parallelism_threads"):
            monkeypatch.setattr(tensorflow.losses.tf.config.threading, name, lambda _: None)

    return present


@pytest.mark.parametrize(
    ("num_gpus", "of_pytorch", "of_tensorflow"),
    [
        (None, "this PyTorch has no CUDA", "this TensorFlow has no CUDA"),
        (0, "PyTorch finds no GPU", "TensorFlow finds no GPU"),
        (1, None, None),
    ],
)
def test_a_device_that_a_framework_lacks_is_a_problem_in_words_with_which_a_run_is_refused(num_gpus, of_pytorch, of_tensorflow, find):
    find(num_gpus)
    for framework, problem in ((devices, of_pytorch), (tensorflow.tensorflow_trainer, of_tensorflow)):
        assert (framework.device_problem("cpu"), framework.device_problem("cuda")) == (None, problem)
        if problem:
            with refused(f"--device cuda, but {problem}; use --device cpu, or set up with"):
                framework.pick_device(SETTINGS, Ranks())


@pytest.mark.parametrize(("device", "num_gpus", "num_usable"), [(torch.device("cpu"), 2, 0), (GPU_1, 1, 1)])
def test_data_parallel_needs_several_gpus(device, num_gpus, num_usable, find):
    data_parallel = pytest.importorskip("frameworks.data_parallel")
    find(num_gpus)
    with refused(f"with {num_usable} GPUs DataParallel would only call the module; use single, or a node with several GPUs"):
        data_parallel.gpus(device)
    find(3)
    # Its parameters are on the first of all GPUs.
    assert data_parallel.gpus(torch.device("cuda", 2)) == [2, 0, 1]


@pytest.mark.parametrize(
    ("device", "has_cuda", "problem"), [("cpu", False, None), ("cuda", True, None), ("cuda", False, "this Horovod has no CUDA")]
)
def test_horovod_needs_a_build_with_cuda(device, has_cuda, problem):
    assert horovod.device_problem(SimpleNamespace(cuda_built=lambda: has_cuda), device) == problem


def test_deepspeed_computes_on_the_device_that_it_has_chosen(find):
    # Imported here, since DeepSpeed takes a second and other processes only collect these tests.
    from frameworks.shared.deepspeed import engine

    assert engine.device_problem("cpu") is None
    find(None)
    assert engine.device_problem("cuda") == "this PyTorch has no CUDA"
    find(1)
    assert engine.device_problem("cuda") == "DeepSpeed has chosen cpu; set DS_ACCELERATOR=cuda"


def test_a_gpu_is_described_with_the_versions_of_its_libraries(find):
    find(2)
    of_pytorch, of_tensorflow = devices.describe_device(torch.device("cuda", 1)), tensorflow.tensorflow_trainer.describe_device(0, "2.18.5")
    left_out = dict.fromkeys(("product", "memory", "num_threads"))
    assert of_pytorch._replace(cuda="13.0", **left_out) == Device("cuda", 1, "13.0", "9.10.2", "2.27.3")
    assert of_tensorflow._replace(**left_out) == Device("cuda", 0, "12.5.1", "9", "2.18.5")


def test_the_frameworks_count_the_memory_of_a_gpu(find, monkeypatch):
    find(2)
    reset = []
    for name, of in (
        ("reset_peak_memory_stats", reset.append),
        ("max_memory_allocated", {GPU_1: 5}.get),
        ("max_memory_reserved", {GPU_1: 8}.get),
    ):
        monkeypatch.setattr(torch.cuda, name, of)
    for name, of in (("reset_memory_stats", reset.append), ("get_memory_info", {"GPU:0": {"peak": 7}}.get)):
        monkeypatch.setattr(tensorflow.losses.tf.config.experimental, name, of)
    of_pytorch, of_tensorflow = devices.describe_device(GPU_1).memory, tensorflow.tensorflow_trainer.describe_device(1, None).memory
    of_pytorch.reset()
    of_tensorflow.reset()
    assert (reset, of_pytorch.peak(), of_tensorflow.peak()) == ([GPU_1, "GPU:0"], (5, 8), (7, None))


@pytest.mark.parametrize(("device", "done"), [(GPU_1, ["pinned", (GPU_1, True)]), (torch.device("cpu"), [(torch.device("cpu"), False)])])
def test_batches_are_copied_to_a_gpu_from_pinned_memory_while_others_compute(device, done, monkeypatch):
    seen = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: seen.append("pinned") or tensor)
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, device, non_blocking=False: seen.append((device, non_blocking)) or tensor)
    ((inputs, targets, weights, learning_rate),) = steps.tensors([Batch(*np.ones((3, 2)), 0.5)], device)
    assert (inputs.tolist(), targets.tolist(), weights.tolist(), learning_rate) == ([1, 1], [1, 1], [1, 1], 0.5)
    assert seen == 3 * done


def test_a_cpu_has_no_number(find):
    find(None)
    assert devices.describe_device(torch.device("cpu")).memory is tensorflow.tensorflow_trainer.describe_device(None, None).memory is None
    assert (
        devices.describe_device(torch.device("cpu"))[:3]
        == tensorflow.tensorflow_trainer.describe_device(None, None)[:3]
        == ("cpu", None, None)
    )


@pytest.mark.parametrize(("precision", "allowed"), [("tf32", True), ("fp32", False), ("bf16", False)])
def test_only_tf32_computes_in_it(precision, allowed, find, monkeypatch):
    find(None)
    backends, config = torch.backends, tensorflow.losses.tf.config
    monkeypatch.setattr(config, "set_visible_devices", lambda *_: None)
    for run_precision, expected in ((precision, allowed), ("fp32", False)):
        for framework in (devices, tensorflow.tensorflow_trainer):
            framework.pick_device(SimpleNamespace(**vars(SETTINGS) | {"device": "cpu", "precision": run_precision}), Ranks())
        of_pytorch = backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32
        assert (*of_pytorch, config.experimental.tensor_float_32_execution_enabled()) == (expected,) * 3
