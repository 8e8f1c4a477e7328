"""Where libraries do unlike things by default, what every backend here does. In one place, and in every workload's digest.

- Adam's epsilon is 1e-8 and stands outside the square root, after the correction of both moments (Kingma and Ba 2015,
  arXiv:1412.6980, algorithm 1). PyTorch does so; Keras has 1e-7, and puts it before the correction.
- SGD's velocity holds gradients: v = momentum * v + gradient; parameter = parameter - rate * v. Keras keeps rate * gradient
  in it, so that its momentum means something else while the rate rises (Goyal et al. 2017, arXiv:1706.02677, remark 2).
- All optimizer state starts at 0. A first step that takes the gradient itself for the velocity, as PyTorch's, is the same.
- A loss is the mean over the global batch's counted targets; gradients are averaged over ranks.
- A cross entropy with probabilities is -sum(p * log softmax), also for those that do not add up to 1, for which TensorFlow's own
  has another gradient.
- Gradients are not clipped (DeepSpeed clips at 1.0 unless told otherwise), weights do not decay.
- Norms have the epsilons below; PyTorch's RMSNorm has that of the number type, Keras's LayerNormalization 1e-3.
- Activations are ReLU and SiLU, which have one form everywhere. There is no GELU, which PyTorch takes exact and others by tanh.
"""

ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8
RMS_NORM_EPSILON = 1e-5
LAYER_NORM_EPSILON = 1e-5
ROTARY_BASE = 10_000.0

CNN_DROPOUT = (0.25, 0.5)
ENCODER_DECODER_DROPOUT = 0.1

CONVENTIONS = {name: value for name, value in globals().items() if name.isupper()}
