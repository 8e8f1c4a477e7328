"""The CNN and the data as Horovod's examples for TensorFlow write them."""

import tensorflow as tf


def cnn():
    return tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(32, [3, 3], activation="relu"),
            tf.keras.layers.Conv2D(64, [3, 3], activation="relu"),
            tf.keras.layers.MaxPooling2D(pool_size=(2, 2)),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )


def dataset(work):
    """All samples in an order of each rank's own, without end."""
    samples = tf.data.Dataset.from_tensor_slices((tf.cast(work.inputs[..., tf.newaxis], tf.float32), tf.cast(work.targets, tf.int64)))
    return samples.repeat().shuffle(10_000).batch(work.settings.batch_size)


def set_threads(work):
    """As ours does; to be called before TensorFlow does anything."""
    tf.config.threading.set_intra_op_parallelism_threads(work.settings.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
