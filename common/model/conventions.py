"""The conventions of every backend where the defaults of the libraries differ. Their VERSION is part of every workload's digest.

- Adam: epsilon is 1e-8, added outside the square root after bias correction of both moments (Kingma and Ba 2015,
  arXiv:1412.6980, algorithm 1), as in PyTorch. Keras uses 1e-7, added before bias correction.
- SGD: v = momentum * v + gradient; parameter = parameter - learning_rate * v. Keras accumulates learning_rate * gradient, which
  changes the effective momentum during warm-up (Goyal et al. 2017, arXiv:1706.02677, remark 2).
- All optimizer state starts at 0. PyTorch's first step, which sets v = gradient, is equivalent.
- The loss is the mean over the targets of the global batch; gradients are averaged over ranks.
- No gradient clipping but of a user's file (DeepSpeed clips at 1.0 by default), no weight decay.
- Epsilons of norms are below. PyTorch's RMSNorm defaults to that of the dtype.
- Batch norm uses the statistics of a rank's own micro-batch, with the biased variance. Keras's epsilon is 1e-3; ours stands in
  common/model/resnet.py.
- Precisions. fp32, fp64: data, parameters, gradients, optimizer state and arithmetic are of this type. bf16 is mixed: these are
  float32, and so are the exchange of gradients, embedding, norms, rotation, softmax, residual connections and loss. The operands and
  results of matrix products, convolutions and attention are rounded to bfloat16, and what follows them up to there (bias, ReLU, SiLU
  and its product, max-pooling, dropout) is in bfloat16 too: what PyTorch's autocast does. There is no loss scaling, since bfloat16
  has the range of float32. tf32 is fp32, but for matrix products and convolutions of GPUs, whose operands are rounded to TF32.
- Activations are ReLU and SiLU, which are the same everywhere. GELU is not used: PyTorch's is exact, others use tanh.
"""

# Raised by one where a convention becomes another: earlier records are then not compared with new ones. A further one leaves it.
VERSION = 1

ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8
RMS_NORM_EPSILON = 1e-5
ROTARY_BASE = 10_000.0

CNN_DROPOUT = (0.25, 0.5)
