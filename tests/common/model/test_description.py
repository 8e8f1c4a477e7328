"""The models: their parameters and FLOPs are those of the PyTorch modules, and they compute the functions of the papers."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from common.model import weights
from common.model.decoder import Decoder
from common.model.description import parameters_of
from common.workloads import WORKLOADS
from frameworks.shared.pytorch import states
from tests.support.small_models import MODELS, module_of

DECODERS = [name for name, workload in WORKLOADS.items() if isinstance(workload.model, Decoder)]


def made(model, seed=5):
    """The module of a model, in float64 and evaluating, with the parameters drawn for it, and these by name."""
    drawn = weights.draw(parameters_of(model), seed, "fp64")
    module = module_of(model).to(torch.float64).eval()
    restore(module, drawn)
    return module, drawn


def restore(module, parameters):
    states.restore(module, torch.optim.SGD(module.parameters(), lr=0.1), parameters)


def shapes_of(model):
    return {name: initial.shape for name, initial in parameters_of(model).items()}


def tokens_for(model, num_samples=2):
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (num_samples, model.context)))


@torch.no_grad()
def applied(module, inputs):
    return module(inputs).numpy()


# Those of convolutions have another layout; every test of a whole CNN or ResNet-50 sets all of them by their names.
@pytest.mark.parametrize("workload", [name for name, workload in WORKLOADS.items() if workload.model.tokens_per_sample])
def test_the_module_has_the_parameters_of_the_workload_under_their_names_and_is_built_without_memory_for_them(workload):
    model = WORKLOADS[workload].model
    with torch.device("meta"):
        module = module_of(model)
    assert {name: tuple(parameter.shape) for name, parameter in module.named_parameters()} == shapes_of(model)
    assert all(parameter.is_meta for parameter in module.parameters())


def num_parameters(model):
    return sum(map(math.prod, shapes_of(model).values()))


@pytest.mark.parametrize(
    ("workload", "number"),
    [
        ("cnn", 1_199_882),
        # Embedding, head and norm; of each layer: four matrices, three of SwiGLU, two norms.
        ("transformer", 2 * 256 * 64 + 64 + 2 * (4 * 64**2 + 3 * 64 * 192 + 2 * 64)),
        ("transformer-1b", 2 * 256 * 2048 + 2048 + 24 * (4 * 2048**2 + 3 * 2048 * 5472 + 2 * 2048)),
        ("resnet50", 25_557_032),
    ],
)
def test_the_number_of_parameters(workload, number):
    assert num_parameters(WORKLOADS[workload].model) == number


def test_with_the_vocabulary_of_gpt_2_its_workload_has_as_many_parameters_but_for_those_of_positions_biases_and_norms():
    model = dataclasses.replace(WORKLOADS["transformer-gpt2"].model, num_tokens=50_257)
    # SwiGLU has three matrices of width 2,048 for two of 3,072; GPT-2 has 124,439,808 parameters (Hugging Face's count).
    per_layer = 4 * 768 + 3072 + 768 + 4 * 768 - 2 * 768
    assert num_parameters(model) == 124_439_808 - 1024 * 768 - 12 * per_layer - 768 == 123_551_232


@pytest.mark.parametrize("workload", DECODERS)
def test_the_weights_of_a_decoder_start_at_the_deviation_of_their_fan_in_and_into_the_residual_stream_lower(workload):
    model = WORKLOADS[workload].model
    for name, (shape, distribution, scale) in parameters_of(model).items():
        kind = name.split(".")[-2]
        if kind.endswith("norm"):
            assert (distribution, scale) == ("constant", 1)
            continue
        lowered = 1 / math.sqrt(2 * model.num_layers) if kind in ("attended", "down") else 1
        fan_in = 1 if kind == "embedding" else shape[1]
        assert distribution == "normal"
        if kind == "embedding" and model.tied:
            assert scale == 0.02
            continue
        assert scale == pytest.approx(lowered / math.sqrt(fan_in), rel=1e-12), name


def rms_normed(x, weight):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weight


def turned(x):
    """Rotary positions as complex numbers: the i-th turns by the position times 10000 ** (-2 * i / head width)."""
    context, head_width = x.shape[-2:]
    angles = np.outer(np.arange(context), 10_000.0 ** (-2 * np.arange(head_width // 2) / head_width))
    return (x[..., : head_width // 2] + 1j * x[..., head_width // 2 :]) * np.exp(1j * angles)


def decoded(tokens, parameters, num_heads, num_layers):
    """Logits of the decoder from Touvron et al. 2023 and Su et al. 2021, for the tokens of one sample."""
    x = parameters["embedding.weight"][tokens]
    context, width = x.shape
    for layer in range(num_layers):
        names = ("attention_norm", "query", "key", "value", "attended", "feed_norm", "gate", "up", "down")
        p = {name: parameters[f"blocks.{layer}.{name}.weight"] for name in names}
        normed = rms_normed(x, p["attention_norm"])
        query, key, value = ((normed @ p[name].T).reshape(context, num_heads, -1).swapaxes(0, 1) for name in ("query", "key", "value"))
        scores = (turned(query) @ turned(key).conj().swapaxes(1, 2)).real / math.sqrt(width // num_heads)
        scores = np.where(np.tri(context, dtype=bool), scores, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (shares / shares.sum(-1, keepdims=True)) @ value
        x = x + mixed.swapaxes(0, 1).reshape(context, width) @ p["attended"].T
        normed = rms_normed(x, p["feed_norm"])
        gate = normed @ p["gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (normed @ p["up"].T)) @ p["down"].T
    return rms_normed(x, parameters["norm.weight"]) @ parameters.get("head.weight", parameters["embedding.weight"]).T


@pytest.mark.parametrize("tied", [False, True])
def test_the_decoder_is_the_function_of_its_papers(tied):
    model = dataclasses.replace(WORKLOADS["transformer"].model, tied=tied)
    module, drawn = made(model)
    # Norms with weight 1 would hide a missing or misplaced one.
    stream = np.random.default_rng(1)
    drawn = {name: stream.uniform(0.5, 1.5, array.shape) if "norm" in name else array for name, array in drawn.items()}
    restore(module, drawn)
    tokens = tokens_for(model)
    for logits, sample in zip(applied(module, tokens), tokens.numpy(), strict=True):
        np.testing.assert_allclose(logits, decoded(sample, drawn, model.num_heads, model.num_layers), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_the_flops_of_training_are_those_that_pytorch_counts(model):
    # On the meta device nothing is computed.
    module, has_tokens = module_of(model).to("meta", torch.float32), bool(model.tokens_per_sample)
    # Without the gradient by its inputs, the first layer would have one product less.
    kind = {"dtype": torch.int64} if has_tokens else {"dtype": torch.float32, "requires_grad": True}
    inputs = torch.zeros(3, *model.input_shape, device="meta", **kind)
    # Other kernels of attention are not counted.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        module(inputs).sum().backward()
    assert counter.get_total_flops() == 3 * model.training_flops()


def test_the_columns_of_flattened_images_go_from_channels_first_to_channels_last():
    height, width, channels = 12, 11, 8
    first = np.arange(2 * channels * height * width).reshape(2, -1)
    last = weights.flattened_channels_last(first, (height, width))
    assert last[1, (5 * width + 7) * channels + 3] == first[1, (3 * height + 5) * width + 7]
    np.testing.assert_array_equal(weights.flattened_channels_first(last, (height, width)), first)
