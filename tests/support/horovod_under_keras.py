"""Two ranks that train with Horovod's optimizer for Keras, and then compare their replicas as every run of Tandem does; run by mpiexec.

TF_USE_LEGACY_KERAS selects Keras: 1 is tf-keras (Keras 2), 0 is Keras 3.
"""

from types import SimpleNamespace

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from tensorflow import keras

from common.model.weights import digest
from common.training.checks import expect_same


def main() -> None:
    hvd.init()
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
    inputs = np.random.default_rng(hvd.rank()).normal(size=(32, 3))
    model.fit(inputs, inputs[:, :2], batch_size=8, epochs=2, verbose=0)
    trainer = SimpleNamespace(
        ranks=SimpleNamespace(rank=hvd.rank(), size=hvd.size()),
        sum=lambda values: np.asarray(hvd.allreduce(tf.constant(values), op=hvd.Sum)),
    )
    parameters = {str(number): values for number, values in enumerate(model.get_weights())}
    expect_same(trainer, digest(parameters), "have different parameters after training", "the replicas are out of sync")


if __name__ == "__main__":
    main()
