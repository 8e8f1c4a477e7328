"""The activations of a user's model, by PyTorch's MemTracker, against what autograd keeps in a real forward pass."""

import pytest
import torch

from common.cost import activations, memory_forecast
from common.cost.memory_forecast import Training
from common.model import own_activations, own_file, own_model
from common.model.own_model import OwnModel
from launch.forecast.memory import described
from tests.support.mistakes import refused
from tests.support.own_models import BEGINNING, SOUND


def model_of(folder, text):
    (folder / "mine.py").write_text(BEGINNING + text)
    return OwnModel(str(folder / "mine.py"), None)


def kept_bytes(model, batch_size):
    """Bytes of the tensors that autograd keeps of a batch, but for parameters and the batch, and of the outputs."""
    module, (inputs, targets) = own_file.build(model.file, 0), own_model.first_batch(model, batch_size)
    excluded = {tensor.untyped_storage().data_ptr() for tensor in (*module.parameters(), *module.buffers(), inputs, targets)}
    storages = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in excluded:
            # Kept, so that no other tensor comes to lie at the same place.
            storages[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        outputs = module(inputs)
        model.file.content.loss(outputs, targets)
    keep(outputs)
    return sum(storage.nbytes() for storage in storages.values())


@pytest.mark.parametrize("name", ["residual-network", "u-net", "mlp-mixer"])
def test_what_is_tracked_is_what_autograd_keeps(name, tmp_path):
    model = model_of(tmp_path, SOUND[name])
    tracked = own_activations.of_sample(model, activations.sizes_of("fp32", "cpu"))
    assert tracked.kept == pytest.approx((kept_bytes(model, 16) - kept_bytes(model, 8)) / 8, rel=0.01)
    assert 0 < tracked.working < tracked.kept
    assert own_activations.of_sample(model, activations.sizes_of("fp64", "cpu")).kept == pytest.approx(2 * tracked.kept, rel=0.05)


def test_a_forecast_of_a_file_has_its_state_and_its_activations(tmp_path):
    model = model_of(tmp_path, SOUND["mlp-mixer"])
    training = described.training_of(described.Memory(model=model.source, batch_size=32, optimizer="adam"))
    tracked = own_activations.of_sample(model, activations.sizes_of("fp32", "cuda"))
    parameters = 4 * memory_forecast.num_parameters(training)
    forecast = memory_forecast.of("ddp", training, 4)
    assert (forecast.parameters, forecast.optimizer_state, forecast.activations) == (parameters, 2 * parameters, 32 * tracked.kept)
    assert forecast.peak >= 4 * parameters + 32 * (tracked.kept + tracked.working)
    assert memory_forecast.of("deepspeed_zero@3", training, 4).parameters < parameters
    assert described.training_of(described.Memory(model=model.source)).batch_size == 32
    with refused("--recompute would save no memory of"):
        described.training_of(described.Memory(model=model.source, recompute=True))
    with refused("--layers is for a model that is described by --layers and --width; leave it out, or --model"):
        described.training_of(described.Memory(model=model.source, layers=2))


@pytest.mark.parametrize(("made", "number"), [("AdamW(p)", 2), ("Adam(p, amsgrad=True)", 3), ("SGD(p, momentum=0.9)", 1), ("SGD(p)", 0)])
def test_the_state_is_that_of_the_optimizer_of_a_file(made, number, tmp_path):
    text = f"\nLEARNING_RATE = 0.1\ndef optimizer(p):\n    return torch.optim.{made}\n"
    forecast = memory_forecast.of("single", Training(model_of(tmp_path, SOUND["mlp-mixer"] + text), 8, optimizer="sgd"), 1)
    assert forecast.optimizer_state == number * forecast.parameters


def test_what_depends_on_values_is_not_known(tmp_path):
    text = SOUND["mlp-mixer"].replace("return self.head(x.mean(1))", "return self.head(x.mean(1) * (2 if x.sum().item() > 0 else 1))")
    model = model_of(tmp_path, text)
    assert own_activations.of_sample(model, activations.sizes_of("fp32", "cpu")) is None
    reason = memory_forecast.problem("ddp", Training(model, 8), 2)
    assert reason == (
        "there is no forecast for ddp: the activations of mine.py are not known in this precision, or PyTorch's MemTracker does not take it"
    )
