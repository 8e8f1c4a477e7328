"""The code for GPUs that PyTorch for CUDA runs without one: on fake tensors, which have a device and a shape but no values.

The backward pass and bfloat16 are not here, for autograd's engine and autocast ask the device; tests/gpu.sh has them.
"""

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode

from common.config import Settings
from common.ranks.launcher_variables import Ranks
from common.workloads import WORKLOADS, resolve, workload_of
from frameworks.shared.pytorch import modules, process_group, steps
from tests.support import small_models

pytestmark = pytest.mark.skipif(not torch.backends.cuda.is_built(), reason="this PyTorch has no CUDA; TANDEM_DEVICE=cuda launch/setup.sh")
GPU = torch.device("cuda", 0)
SMALL = {"cnn": "cnn", "transformer": "decoder", "resnet50": "resnet"}


def moved(module, device, dtype):
    """Module.to, which cannot exchange a fake tensor for another."""
    for part in module.modules():
        for name, tensor in part._parameters.items():
            part._parameters[name] = None if tensor is None else torch.nn.Parameter(tensor.detach().to(device, dtype))
        for name, tensor in part._buffers.items():
            part._buffers[name] = tensor.to(device, dtype if tensor.is_floating_point() else None)
    return module


@pytest.fixture
def fake(monkeypatch):
    """Tensors are fake, and are not copied into pinned memory, which would need the driver."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(torch.nn.Module, "to", moved)
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("precision", ["fp32", "fp64"])
@pytest.mark.parametrize("workload", SMALL)
def test_a_model_is_built_on_a_gpu_and_computes_there_what_it_computes_on_a_cpu(workload, precision, monkeypatch):
    monkeypatch.setitem(WORKLOADS, workload, WORKLOADS[workload]._replace(model=small_models.MODELS[SMALL[workload]]))
    settings = resolve(Settings(workload=workload, precision=precision), 1)
    model = workload_of(settings).model
    module, on_cpu = (modules.build(settings, device, Ranks()) for device in (GPU, torch.device("cpu")))
    assert {parameter.device for parameter in (*module.parameters(), *module.buffers())} == {GPU}
    assert isinstance(steps.optimizer_for(settings, module), torch.optim.Optimizer)
    inputs = torch.from_numpy(model.first_samples(3, precision).inputs)
    with torch.no_grad():
        logits, expected = module(steps.on_device(inputs, GPU)), on_cpu(inputs)
    assert (logits.device, logits.shape, logits.dtype) == (GPU, expected.shape, expected.dtype)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gradients_on_gpus_go_over_nccl_which_says_that_there_is_none():
    transport = process_group.transport_of(GPU, Settings())
    with pytest.raises(ValueError, match="ProcessGroupNCCL is only supported with GPUs, no GPUs found!"):
        dist.init_process_group(transport, store=dist.HashStore(), rank=0, world_size=1)
