"""A step over another link, from the same two ranks over two links: what the network decides, and what it does not. Pure."""

from launch.forecast.network.algorithms import Machine
from launch.forecast.network.messages import fitted, of_messages
from launch.forecast.scaling import model

# Bytes on the wire for each byte that is sent: frames of 1,514 bytes with 1,448 of payload (Ethernet, IPv4, TCP with timestamps).
FRAMES = 1514 / 1448


def fit(fast, slow, slow_bytes_per_second, bytes_per_second, names):
    """The Model of a step over a link of a bandwidth, from the Sizes of one backend over a fast link and over a slow one.

    A byte takes the longer of its time on the wire and of its time through the library, which the links that were measured show: the slow
    one for links that are slower still, the fast one for others. Latency is that of the slow link. What steps over both links take beside
    the model is their mean.
    """
    link_of_fast, link_of_slow = (_message(size, names[0]) for size in (fast, slow))
    library = link_of_slow if bytes_per_second <= slow_bytes_per_second else link_of_fast
    beta = max(library.beta_seconds_per_byte, FRAMES / bytes_per_second)
    compute = (fast.compute_seconds + slow.compute_seconds) / 2
    models = ((fast, _model(fast, compute, link_of_fast, names)), (slow, _model(slow, compute, link_of_slow, names)))
    rest = sum(size.step_seconds - over_it.step_seconds(size.num_ranks) for size, over_it in models) / len(models)
    over_link = _model(slow, compute, link_of_slow._replace(beta_seconds_per_byte=beta), names)
    return over_link._replace(unexplained_seconds=(rest, rest))


def _message(size, name):
    """The Regime of the largest messages between two nodes."""
    regimes, _ = fitted(size.plain)
    return of_messages(regimes, name, size.num_ranks, size.num_ranks // size.num_nodes)[-1]._replace(from_bytes=0)


def _model(size, compute, link, names):
    machine = Machine(size.num_ranks // size.num_nodes, (link,), (link,))
    return model.Model(machine, names, size.data_wait_seconds, lambda *_: compute, size.exchanges, size.slowest)
