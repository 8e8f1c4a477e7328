"""MultiWorkerMirroredStrategy: how its workers meet, what they exchange, and how that is measured."""

import functools
import json
import math
import os
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from common.ranks import watchdog
from common.ranks.launcher_variables import Ranks
from common.ranks.meeting import gathered, held_port, master_address
from common.record.parts import Transport
from common.trainer import Communication, ProfiledCommunication
from frameworks.shared.replaced import replaced
from frameworks.shared.tensorflow.optimizer import Gradient

IMPLEMENTATIONS = {
    "grpc": tf.distribute.experimental.CommunicationImplementation.RING,
    "nccl": tf.distribute.experimental.CommunicationImplementation.NCCL,
}
# A day: ranks that wait for their turn are stopped, and the strategy calls them dead after seconds. The watchdog ends a run that hangs.
HEARTBEAT_TIMEOUT_MILLISECONDS = 24 * 3600 * 1000
# The operation of an all-reduce in a graph of TensorFlow.
ALL_REDUCE = "CollectiveReduceV2"

# Makes of a rank's gradients those that update the parameters; called within the strategy's run.
Average = Callable[[Sequence[Gradient]], Sequence[Gradient]]


@functools.cache
def begin(ranks: Ranks, transport: Transport) -> tf.distribute.Strategy:
    """Starts the workers, whose addresses the ranks exchange over MPI, and returns their strategy.

    TensorFlow can start them once in a process. Raises UserError if MPI has a different number of ranks.
    """
    on_one_node = ranks.local_size == ranks.size
    with held_port() as port:
        addresses = gathered(f"{master_address(socket.gethostname(), on_one_node)}:{port}", ranks)
    cluster = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": ranks.rank}}
    os.environ["TF_CONFIG"] = json.dumps(cluster)
    # gRPC would ask a site's http_proxy for the other ranks.
    os.environ["no_grpc_proxy"] = ",".join(address.rpartition(":")[0] for address in addresses)  # noqa: SIM112
    options = tf.distribute.experimental.CommunicationOptions(implementation=IMPLEMENTATIONS[transport])
    this_context: Any = context.context()
    configure = functools.partial(this_context.configure_coordination_service, heartbeat_timeout_in_ms=HEARTBEAT_TIMEOUT_MILLISECONDS)
    with (
        replaced((this_context, "configure_coordination_service", configure)),
        watchdog.joining(ranks.rank, lambda: "in tf.distribute.MultiWorkerMirroredStrategy()"),
    ):
        strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    # TensorFlow takes SIGTERM as news of a preemption, and would go on training.
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    return strategy


def meet(ranks: Ranks) -> None:
    """Waits over MPI until all ranks have come here."""
    gathered(None, ranks)


def average(gradients: Sequence[Gradient]) -> Sequence[Gradient]:
    """Averages gradients over the ranks. Those with slices become dense, as with Horovod."""
    replica = tf.distribute.get_replica_context()
    return replica.all_reduce(tf.distribute.ReduceOp.MEAN, [tf.convert_to_tensor(gradient) for gradient in gradients])


def left_out(gradients: Sequence[Gradient]) -> Sequence[Gradient]:
    """Leaves gradients as they are, in the place of `average`."""
    return gradients


@tf.function(reduce_retracing=True, autograph=False)
def summed(strategy: tf.distribute.Strategy, values: tf.Tensor) -> tf.Tensor:
    """Sum-all-reduces a tensor."""

    def replica_sum() -> tf.Tensor:
        # An argument of a traced function has no device, which the strategy needs.
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(values))

    return strategy.run(replica_sum)


def communication(trainer: Any) -> Communication:
    """Returns how to measure the communication of a trainer whose steps call its `average`."""
    return Communication(lambda: replaced((trainer, "average", left_out)), functools.partial(profile_of, trainer))


def profile_of(trainer: Any, train: Callable[[], None]) -> ProfiledCommunication:
    """Times the averages in train() by operations of the graph, since TensorFlow's profiler may crash where there are collectives.

    On a GPU, whose operations are queued, the times are not known.
    """
    seconds: list[float] = []
    sizes: list[int] = []
    with replaced((trainer, "average", timed(trainer.average, seconds, sizes))):
        # The first call compiles, which ends at another time on each rank.
        train()
        seconds.clear()
        train()
    if not sizes:
        return ProfiledCommunication(0.0, {})
    operations = {"all_reduce": (len(seconds) * len(sizes), len(seconds) * sum(sizes))}
    return ProfiledCommunication(sum(seconds) if trainer.gpu is None else math.nan, operations)


def timed(averages: Average, seconds: list[float], sizes: list[int]) -> Average:
    """Returns a function that averages, and notes in `seconds` how long that took since the last gradient was there.

    `sizes` gets the bytes of each all-reduce, and stays empty where there is none.
    """

    def note(begun: float, ended: float) -> None:
        seconds.append(float(ended - begun))

    def timed_average(gradients: Sequence[Gradient]) -> Sequence[Gradient]:
        local = [tf.convert_to_tensor(gradient) for gradient in gradients]
        with tf.control_dependencies(local):
            begun = tf.timestamp()
        with tf.control_dependencies([begun]):
            averaged = averages([tf.identity(gradient) for gradient in local])
        calls = [operation for operation in begun.graph.get_operations() if operation.type == ALL_REDUCE]
        sizes[:] = [call.inputs[0].shape.num_elements() * call.inputs[0].dtype.size for call in calls]
        if calls:
            with tf.control_dependencies(averaged):
                tf.numpy_function(note, [begun, tf.timestamp()], [])
        return averaged

    return timed_average
