"""What PyTorch keeps of a forward pass for the backward pass, by formula. Pure.

Counted is each tensor that autograd keeps, once, but neither parameters nor the batch itself, after Korthikanti et al. 2022,
arXiv:2205.05198, section 4.1, whose layer has LayerNorm, GELU and a matrix of scores. The decoder here has RMSNorm, SwiGLU and rotary
embeddings, and scaled_dot_product_attention, which keeps one number per head and position in place of that matrix. Mixed precision keeps
copies in 16 bits of what matrix products multiply, weights too.
"""

import functools
import itertools
import math
from typing import NamedTuple

from common import resnet
from common.models import Cnn, Decoder, EncoderDecoder, ResNet50, parameters_of
from common.sharing import PRECISIONS

INDEX_BYTES = 8


class Part(NamedTuple):
    """A part of a model, whose activations the backward pass frees before it comes to the part before it.

    Bytes: `kept`, for each sample of a batch; `copies`, of weights in 16 bits; `working`, what its backward pass has beside, for each
    sample. `inputs`: those of `kept` that stay where the part is recomputed, None where it cannot be. `again`: those that the backward
    pass computes again. `num_parameters`: of the model's. `block`: of parts that are recomputed, or gathered by FSDP, at once; "" for
    the rest.
    """

    name: str
    num_parameters: int
    kept: float
    working: float
    copies: float = 0
    inputs: float | None = None
    again: float = 0
    block: str = ""


class Sizes(NamedTuple):
    """Bytes of a number: of a parameter, and of what is added up over layers; of a factor of a matrix product; of a statistic or a loss.

    `fused`: RMSNorm is one operation and attention returns its result as the next product takes it, as on GPUs.
    """

    element: int
    product: int
    statistic: int
    fused: bool

    @property
    def mixed(self):
        return self.product != self.element


def sizes_of(precision, device):
    """The Sizes in a precision of common/sharing.py on `cpu` or `cuda`."""
    own = PRECISIONS[precision]
    return Sizes(own.parameters, own.products, max(4, own.parameters), device == "cuda")


def cnn(model, sizes, _):
    product = sizes.product
    first, second, pooled = 26 * 26 * 32, 24 * 24 * 64, 12 * 12 * 64
    kept = {
        "conv1": product * (first + (28 * 28 if sizes.mixed else 0)),
        "conv2": product * (second + pooled) + INDEX_BYTES * pooled,
        "dense1": product * 128,
        "dense2": sizes.statistic * 10,
    }
    # The gradients of a layer's output before and after its activation function.
    working = {"conv1": 2 * product * first, "conv2": 2 * product * second, "dense1": 2 * product * 128, "dense2": 2 * sizes.statistic * 10}
    return [_part(model, name, (name,), kept[name], working[name], sizes) for name in kept]


def decoder(model, sizes, num_divisions):
    """The halves of each block are apart, as in common/pipelining.py.

    `num_divisions`: ranks among which tensor parallelism divides heads, SwiGLU and, between the products, the context, so that each gathers
    the inputs of products whole (Korthikanti et al. 2022, section 4.2.2).
    """
    element, product, statistic, _ = sizes
    gathered = model.context * model.width
    stream, hidden = gathered / num_divisions, model.context * model.hidden / num_divisions
    logits = model.context * model.num_tokens
    scores = statistic * model.num_heads * model.context / num_divisions

    def norm(num_products):
        # On CPUs also the input over its root mean square. Each product casts its input for itself.
        inputs = num_products * product if sizes.mixed else element
        statistics = statistic * model.context / num_divisions
        return element * stream * (1 if sizes.fused else 2) + statistics + inputs * gathered

    # Rotated queries and keys, values, and what they make, on CPUs twice.
    attention = norm(3) + product * stream * (4 if sizes.fused else 5) + scores
    feed = norm(2) + 4 * product * hidden
    parts = [_part(model, "embedding", ("embedding",), 0, element * stream, sizes)._replace(copies=0)]
    for block in (f"blocks.{layer}" for layer in range(model.num_layers)):
        layers = {
            "attention": (attention, 4 * element * stream, ("attention_norm", "query", "key", "value", "attended")),
            "feed": (feed, element * stream + 2 * product * hidden, ("feed_norm", "gate", "up", "down")),
        }
        for half, (kept, working, names) in layers.items():
            part = _part(model, f"{block}.{half}", [f"{block}.{name}" for name in names], kept, working, sizes)
            parts.append(part._replace(inputs=element * stream, block=block))
    head = norm(1) + statistic * logits, (statistic + (product if sizes.mixed else 0)) * logits
    # A head that is the embedding too has no weight of its own, but a copy.
    copies = product * model.width * model.num_tokens if sizes.mixed else 0
    return [*parts, _part(model, "head", ("norm", "head"), *head, sizes)._replace(copies=copies)]


def encoder_decoder(model, sizes, _):
    """Attention to oneself keeps a copy of its input, queries, keys, values, and their result; each norm its input and two numbers."""
    element, product, statistic, _ = sizes
    source, target = model.source_length * model.width, model.target_length * model.width

    def own(positions):
        # Its input is transposed, which copies it unless there is one position.
        vectors = positions * model.width
        inputs = product * vectors if positions > 1 or sizes.mixed else 0
        return inputs + 4 * product * vectors + statistic * model.num_heads * positions + norm(positions)

    def norm(positions):
        return element * positions * model.width + 2 * statistic * positions

    def feed(positions):
        return product * positions * (model.width + model.hidden) + norm(positions)

    def across():
        return product * (3 * source + 3 * target) + statistic * model.num_heads * model.target_length + norm(model.target_length)

    def working(positions):
        return (2 * element * model.width + 2 * product * model.hidden) * positions

    encoder = own(model.source_length) + feed(model.source_length), working(model.source_length)
    decoder = own(model.target_length) + across() + feed(model.target_length), working(model.target_length)
    parts = []
    for side, (kept, work), inputs in (("encoder", encoder, source), ("decoder", decoder, target)):
        for layer in range(model.num_layers):
            # The first are given the batch; the decoder has the encoder's result.
            given = inputs if layer else source * (side == "decoder")
            parts.append(_part(model, name := f"{side}.layers.{layer}", (name,), kept, work, sizes)._replace(inputs=element * given))
        positions = inputs // model.width
        # The loss is of the last norm's output.
        last = statistic * target if side == "decoder" else 0
        parts.append(_part(model, f"{side}.norm", (f"{side}.norm",), norm(positions) + last, 2 * last, sizes))
    return parts


def resnet50(model, sizes, _):
    product = sizes.product
    first = resnet.first_convolution(model)
    pooled = resnet.halved(first.output_size) ** 2 * first.num_outputs
    stem = product * (3 * model.image_size**2 + 2 * _outputs(first) + pooled) + INDEX_BYTES * pooled
    parts = [_part(model, "stem", (first.name, first.norm), stem, 2 * product * _outputs(first), sizes)]
    # The first block's input is among what the stem keeps.
    inputs = 0
    for block in (block for stage in resnet.stages(model) for block in stage):
        *inner, last = block.convolutions
        of_block = [one for one in (*block.convolutions, block.shortcut) if one]
        # What batch norm is given, and what a convolution is given.
        kept = 2 * sum(map(_outputs, inner)) + 2 * _outputs(last) + (_outputs(block.shortcut) if block.shortcut else 0)
        name = last.name.rpartition(".")[0]
        layers = [layer for one in of_block for layer in (one.name, one.norm)]
        working = 2 * product * max(map(_outputs, of_block))
        parts.append(_part(model, name, layers, product * kept, working, sizes)._replace(block=name, inputs=inputs))
        inputs = product * _outputs(last)
    last = product * resnet.num_features(model) + sizes.statistic * model.num_classes
    return [*parts, _part(model, "fc", ("fc",), last, 2 * sizes.statistic * model.num_classes, sizes)]


def _outputs(convolution):
    return convolution.output_size**2 * convolution.num_outputs


def _part(model, name, layers, kept, working, sizes):
    """A Part with the parameters of these layers, and of the layers within them; copies of its matrices in mixed precision."""
    shapes = [shape for layer in layers for shape in _shapes(model).get(layer, ())]
    copies = sizes.product * sum(math.prod(shape) for shape in shapes if len(shape) > 1) if sizes.mixed else 0
    return Part(name, sum(map(math.prod, shapes)), kept, working, copies)


@functools.cache
def _shapes(model):
    """{layer, or what has layers: shapes of its parameters}."""
    found = {}
    for name, one in parameters_of(model).items():
        words = name.split(".")
        for end in range(1, len(words)):
            found.setdefault(".".join(words[:end]), []).append(one.shape)
    return found


PARTS = {Cnn: cnn, Decoder: decoder, EncoderDecoder: encoder_decoder, ResNet50: resnet50}


def parts_of(model, sizes, num_divisions=1):
    """The Parts of a model in the order of the forward pass."""
    return PARTS[type(model)](model, sizes, num_divisions)


def recomputed(parts, whole_blocks=True):
    """The Parts with --recompute: a block keeps its input, and its backward pass computes the rest again.

    Without `whole_blocks` each half of a block does so by itself, as in a pipeline.
    """
    groups = itertools.groupby(parts, lambda part: (part.inputs is not None and whole_blocks and part.block) or part.name)
    return [_again(name, list(of_block)) for name, of_block in groups]


def _again(name, parts):
    """One Part of the parts of a block, which are computed again; a part that cannot be, as it is."""
    first, last = parts[0], parts[-1]
    if first.inputs is None:
        return first
    kept, copies, num_parameters = (sum(getattr(part, field) for part in parts) for field in ("kept", "copies", "num_parameters"))
    return last._replace(name=name, num_parameters=num_parameters, kept=first.inputs, copies=copies, again=kept - first.inputs)
