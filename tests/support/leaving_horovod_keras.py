"""Two ranks that train by Keras's `fit` with Horovod's callbacks, then under MultiWorkerMirroredStrategy; run by mpiexec.

Raises AssertionError where the two give different parameters or losses. Rank 0 prints the rows of frameworks/HOROVOD.md that agree.
"""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from tensorflow import keras

from common.ranks.launcher_variables import from_environment
from frameworks.shared.tensorflow import mirrored

LEARNING_RATE, WARMUP_EPOCHS, NUM_EPOCHS = 0.1, 3, 5
# A batch has all samples, half of them on each rank.
INPUTS = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
TARGETS = INPUTS[:, :2] ** 2


def model(rank):
    """Each rank has other parameters, of which those of rank 0 must be trained."""
    keras.utils.set_random_seed(rank)
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])


def dataset(inputs, targets):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return tf.data.Dataset.from_tensor_slices((inputs, targets)).batch(len(inputs)).with_options(options)


def fitted(network, data, callback):
    history = network.fit(data, epochs=NUM_EPOCHS, verbose=0, callbacks=callback).history
    return [*network.get_weights(), history["loss"], history["lr"]]


def by_strategy(strategy, rank):
    def warmed_up(epoch):
        return LEARNING_RATE / 2 * (min(epoch + 1, WARMUP_EPOCHS) / WARMUP_EPOCHS + 1)

    with strategy.scope():
        network = model(rank)
        network.compile(keras.optimizers.SGD(), loss="mse")
        before = network.get_weights()
        return before, fitted(network, dataset(INPUTS, TARGETS), [keras.callbacks.LearningRateScheduler(warmed_up)])


def by_horovod(rank):
    data, network = dataset(INPUTS[rank::2], TARGETS[rank::2]), model(rank)
    network.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), loss="mse")
    # It broadcasts after the first step, which without a learning rate changes nothing.
    network.fit(data, verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    before = network.get_weights()
    warmup = hvd.callbacks.LearningRateWarmupCallback(LEARNING_RATE, warmup_epochs=WARMUP_EPOCHS, momentum_correction=False)
    return before, fitted(network, data, [hvd.callbacks.MetricAverageCallback(), warmup])


def main() -> None:
    ranks = from_environment()
    # The strategy must be there before anything is computed.
    strategy = mirrored.begin(ranks, "grpc")
    hvd.init()
    for by_callbacks, by_scope in zip(by_horovod(ranks.rank), by_strategy(strategy, ranks.rank), strict=True):
        for of_callback, of_scope in zip(by_callbacks, by_scope, strict=True):
            np.testing.assert_allclose(of_callback, of_scope, rtol=1e-6, atol=1e-7)
    mirrored.meet(ranks)
    if ranks.rank == 0:
        print("BroadcastGlobalVariablesCallback\nMetricAverageCallback\nLearningRateWarmupCallback")


if __name__ == "__main__":
    main()
