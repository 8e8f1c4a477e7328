"""The optimizer of every TensorFlow backend."""

from collections.abc import Iterable, Mapping

import tensorflow as tf

from common.config import Settings
from common.model import conventions

Parameters = Mapping[str, tf.Variable]
# The gradient of an embedding has slices for the tokens of a batch only.
Gradient = tf.Tensor | tf.IndexedSlices


class Optimizer(tf.Module):
    """SGD with momentum, or Adam, with the update rules of common/model/conventions.py.

    TensorFlow's SGD accumulates learning_rate * gradient, which changes the effective momentum during warm-up (Goyal et al. 2017,
    arXiv:1706.02677, remark 2). Its Adam adds epsilon before bias correction, unlike algorithm 1 of the paper.
    """

    def __init__(self, settings: Settings, parameters: Parameters) -> None:
        super().__init__()
        self.momentum = settings.momentum
        # By parameter, noted where a step is traced: between the operations of a traced step there is no Python.
        self.gradient_bytes: dict[str, int] = {}
        self.prefixes = ("adam_mean", "adam_square", "adam_step") if settings.optimizer == "adam" else ("momentum",)
        self.state: dict[str, tf.Variable] = {
            f"{prefix}/{name}": tf.Variable(tf.zeros((), tf.float32) if prefix == "adam_step" else tf.zeros_like(value))
            for prefix in self.prefixes
            for name, value in parameters.items()
        }

    def step(self, parameters: Parameters, gradients: Iterable[Gradient], learning_rate: tf.Tensor) -> None:
        for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
            self.update(name, parameter, gradient, learning_rate)

    def update(self, name: str, parameter: tf.Variable, gradient: Gradient, learning_rate: tf.Tensor) -> None:
        """Updates one parameter with a fused operation; `learning_rate` is a tensor of the parameter's type."""
        gradient = tf.convert_to_tensor(gradient)
        shared = {"var": parameter.handle, "grad": gradient, "lr": learning_rate}
        # By the parameter's shape, since a traced gradient may have an unknown one.
        self.gradient_bytes[name] = parameter.shape.num_elements() * gradient.dtype.size
        if self.prefixes == ("momentum",):
            velocity = self.state[f"momentum/{name}"]
            momentum = tf.constant(self.momentum, gradient.dtype)
            tf.raw_ops.ResourceApplyMomentum(accum=velocity.handle, momentum=momentum, **shared)
        else:
            self._adam(name, gradient, shared)

    def _adam(self, name: str, gradient: tf.Tensor, shared: dict[str, tf.Tensor]) -> None:
        mean, square, step = (self.state[f"{prefix}/{name}"] for prefix in self.prefixes)
        beta1, beta2 = (tf.constant(beta, gradient.dtype) for beta in conventions.ADAM_BETAS)
        # A variable of a tf.distribute strategy refuses assign_add in a step.
        tf.raw_ops.AssignAddVariableOp(resource=step.handle, value=tf.ones((), step.dtype))
        num_steps = tf.cast(step, gradient.dtype)
        powers = {"beta1_power": beta1**num_steps, "beta2_power": beta2**num_steps}
        # The operation adds epsilon before bias correction; the factor makes it equal to adding ADAM_EPSILON after it.
        epsilon = conventions.ADAM_EPSILON * tf.sqrt(1 - powers["beta2_power"])
        tf.raw_ops.ResourceApplyAdam(m=mean.handle, v=square.handle, beta1=beta1, beta2=beta2, epsilon=epsilon, **powers, **shared)
