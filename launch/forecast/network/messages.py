"""The alpha and beta of a message: from the all-reduces in records, or as given on a command line."""

import json
import math
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path

from common.errors import UserError
from launch.forecast.network import algorithms, hockney
from launch.forecast.network.hockney import Regime

# The regimes of a message between nodes, by transport. It raises UserError for a transport that it does not have.
Network = Callable[[str], tuple[Regime, ...]]
SYNTAX = "alpha=SECONDS,beta=BYTES_PER_SECOND"


def read(text: str) -> Network:
    """Reads the network of a --network: alpha=2e-6,beta=25e9, or a JSON file of launch.collectives.

    Raises UserError for any other text; the network raises it for a transport that the file does not have.
    """
    return _of_file(Path(text)) if text.endswith(".json") else _uniform(text)


def _of_file(path: Path) -> Network:
    """Reads the network that launch.collectives has measured, from the all-reduces of each library at a number of ranks."""
    try:
        content = json.loads(path.read_bytes())
        fits = [fit for fit in content["fits"] if fit["collective"] == "all_reduce" and fit["regimes"]]
        all_reduces = {fit["library"]: tuple(Regime(**regime) for regime in fit["regimes"]) for fit in fits}
        num_ranks, num_nodes = int(content["num_ranks"]), int(content["num_nodes"])
    except OSError as problem:
        raise UserError(f"--network {path} cannot be read ({problem.strerror}); name a JSON file of launch.collectives") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"--network {path} is not a JSON file of launch.collectives; write one with its --json") from None
    if num_ranks < 2 or not all_reduces:
        raise UserError(f"--network {path} has no fitted all-reduce of two ranks or more; measure 3 sizes or more at two ranks")

    def messages_over(transport: str) -> tuple[Regime, ...]:
        if transport not in all_reduces:
            raise UserError(
                f"the file of --network has no all-reduce over {transport}, only over {', '.join(all_reduces)}; measure that too"
            )
        return of_messages(all_reduces[transport], algorithms.BY_TRANSPORT[transport], num_ranks, num_ranks // num_nodes)

    return messages_over


def _uniform(text: str) -> Network:
    """Returns the network of a latency in seconds and a bandwidth in bytes per second, the same for every library."""
    parts = dict(part.split("=", 1) for part in text.replace(" ", "").split(",") if "=" in part)
    if set(parts) != {"alpha", "beta"} or text.count("=") != 2:
        raise UserError(f"--network is {text}; write {SYNTAX}, such as alpha=2e-6,beta=25e9, or name a JSON file of launch.collectives")
    latency, bandwidth = (_number(name, parts[name]) for name in ("alpha", "beta"))
    if not 0 <= latency < math.inf:
        raise UserError(f"--network has alpha={parts['alpha']}; a latency is at least 0 seconds, such as alpha=2e-6")
    if not 0 < bandwidth < math.inf:
        raise UserError(f"--network has beta={parts['beta']}; a bandwidth is above 0 bytes per second, such as beta=25e9")
    return lambda transport: (Regime(0, latency, 1 / bandwidth, 0.0),)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"--network has {name}={text}, which is not a number; write {SYNTAX}") from None


def fitted(points: Iterable[tuple[float, float]]) -> tuple[tuple[Regime, ...], str]:
    """Fits regimes to sizes in bytes and seconds of whole all-reduces, and describes how.

    Records without all_reduce_seconds_by_size have one size for each workload: two sizes give a line, one gives a bandwidth alone.
    """
    by_size = {}
    for size, seconds in points:
        by_size.setdefault(size, []).append(seconds)
    sizes = sorted(by_size)
    medians = [statistics.median_high(by_size[size]) for size in sizes]
    if len(sizes) >= hockney.MIN_SIZES:
        regimes = hockney.fit(sizes, medians)
        residual = max(regime.relative_residual for regime in regimes)
        return regimes, f"alpha and beta fitted to all-reduces of {len(sizes)} sizes, residual {100 * residual:.0f} %"
    if len(sizes) == 1:
        return (Regime(0, 0.0, medians[0] / sizes[0], 0.0),), "bandwidth of all-reduces of one size, alpha taken for 0"
    beta = max(0.0, (medians[1] - medians[0]) / (sizes[1] - sizes[0]))
    alpha = max(0.0, medians[0] - beta * sizes[0])
    return (Regime(0, alpha, beta or medians[1] / sizes[1], 0.0),), "alpha and beta of all-reduces of two sizes, without a residual"


def of_messages(regimes: Iterable[Regime], algorithm: str, num_ranks: int, ranks_per_node: int) -> tuple[Regime, ...]:
    """Derives the regimes of single messages from those of all-reduces by an algorithm at a number of ranks.

    The rounds of a unit buffer show how many alphas an all-reduce has, and how many betas.
    """
    rounds = algorithms.rounds("all_reduce", algorithm, 1.0, num_ranks, ranks_per_node)
    num_messages = sum(messages.num for messages in rounds)
    volume = sum(messages.num * messages.message_bytes * messages.flows for messages in rounds)
    largest = max(messages.message_bytes for messages in rounds)
    return tuple(
        regime._replace(
            from_bytes=regime.from_bytes * largest,
            alpha_seconds=regime.alpha_seconds / num_messages,
            beta_seconds_per_byte=regime.beta_seconds_per_byte / volume,
        )
        for regime in regimes
    )
