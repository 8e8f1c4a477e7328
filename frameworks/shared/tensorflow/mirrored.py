"""MultiWorkerMirroredStrategy: how its workers meet, what they exchange, and how that is measured."""

import functools
import json
import os
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import tensorflow as tf

from common.process import watchdog
from common.process.ranks import Ranks
from common.process.rendezvous import expect_loopback, gathered, held_port, master_address
from common.record.parts import Transport
from common.trainer import Communication, ProfiledCommunication
from frameworks.shared.tensorflow.optimizer import Gradient, Optimizer

IMPLEMENTATIONS = {
    "grpc": tf.distribute.experimental.CommunicationImplementation.RING,
    "nccl": tf.distribute.experimental.CommunicationImplementation.NCCL,
}
# The event of an all-reduce in a trace of TensorFlow.
COLLECTIVE = "CollectiveReduceV2"


def transport_of(gpu: int | None) -> Transport:
    """Returns what gradients go over, where `gpu` is that of the rank, None on the CPU."""
    return "grpc" if gpu is None else "nccl"


@functools.cache
def begin(ranks: Ranks, suffix: str, transport: Transport) -> tf.distribute.Strategy:
    """Starts the workers, whose addresses the ranks exchange over MPI, and returns their strategy; `suffix` as in master_address.

    TensorFlow can start them once in a process. Raises UserError if MPI has a different number of ranks.
    """
    on_one_node = ranks.local_size == ranks.size
    if on_one_node:
        expect_loopback()
    with held_port() as port:
        addresses = gathered(f"{master_address(socket.gethostname(), suffix, on_one_node)}:{port}", ranks)
    cluster = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": ranks.rank}}
    os.environ["TF_CONFIG"] = json.dumps(cluster)
    options = tf.distribute.experimental.CommunicationOptions(implementation=IMPLEMENTATIONS[transport])
    with watchdog.joining(lambda: "in tf.distribute.MultiWorkerMirroredStrategy()"):
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def end(ranks: Ranks) -> None:
    """Waits until all ranks have come here: the service that coordinates them ends with rank 0's process."""
    gathered(None, ranks)


def average(gradients: Sequence[Gradient]) -> Sequence[tf.Tensor]:
    """Averages gradients over the ranks; called within the strategy's run. Those with slices become dense, as with Horovod."""
    replica = tf.distribute.get_replica_context()
    return replica.all_reduce(tf.distribute.ReduceOp.MEAN, [tf.convert_to_tensor(gradient) for gradient in gradients])


@tf.function(reduce_retracing=True)
def summed(strategy: tf.distribute.Strategy, values: tf.Tensor) -> tf.Tensor:
    """Sum-all-reduces a tensor."""

    def replica_sum() -> tf.Tensor:
        # An argument of a traced function has no device, which the strategy needs.
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(values))

    return strategy.run(replica_sum)


def communication(
    strategy: tf.distribute.Strategy, optimizer: Optimizer, without_communication: Callable[[], AbstractContextManager[None]]
) -> Communication:
    """Returns how to measure the communication of a trainer; `without_communication` as in Communication."""

    def all_reduce(num_bytes: int) -> Callable[[], None]:
        buffer = tf.zeros(num_bytes // 4)

        def reduce() -> None:
            # Reading one value waits for completion.
            summed(strategy, buffer)[0].numpy()

        # The first call compiles.
        reduce()
        return reduce

    def profiled(train: Callable[[], None]) -> ProfiledCommunication:
        # The strategy packs all gradients into one call.
        return profile_of(train, sum(optimizer.gradient_bytes.values()))

    return Communication(without_communication, profiled, all_reduce)


def profile_of(train: Callable[[], None], call_bytes: int) -> ProfiledCommunication:
    """Profiles train() with TensorFlow's profiler; `call_bytes` are those that a call all-reduces."""
    # Imported here because only the step breakdown needs it.
    from common.tracing import profiling

    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        try:
            train()
            # The thread of a collective ends its span after the step has ended.
            time.sleep(profiling.LATE_SECONDS)
        finally:
            tf.profiler.experimental.stop()
        spans = [span for space in profiling.spaces(Path(folder)) for span in profiling.spans_named(space, COLLECTIVE)]
    operations = {"all_reduce": (len(spans), len(spans) * call_bytes)} if spans else {}
    return ProfiledCommunication(sum(end - begun for begun, end in spans), operations, {}, {"all_reduce": [begun for begun, _ in spans]})
