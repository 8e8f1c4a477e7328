"""Alpha and beta of a message: as given, and from all-reduces."""

import json

import pytest

from launch.forecast.network import algorithms, messages
from launch.forecast.network.algorithms import Machine
from launch.forecast.network.hockney import Regime
from tests.support.mistakes import refused


def test_a_network_is_given_as_latency_and_bandwidth():
    assert messages.read("alpha=2e-6,beta=25e9")("mpi") == (Regime(0, 2e-6, 4e-11, 0.0),)
    assert messages.read("beta=1e9, alpha=0")("gloo") == (Regime(0, 0.0, 1e-9, 0.0),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alpha=-1e-6,beta=25e9", "--network has alpha=-1e-6; a latency is at least 0 seconds"),
        ("alpha=nan,beta=25e9", "a latency is at least 0 seconds"),
        ("alpha=2e-6,beta=0", "--network has beta=0; a bandwidth is above 0 bytes per second"),
        ("alpha=2us,beta=25e9", "alpha=2us, which is not a number"),
        ("alpha=2e-6", "write alpha=SECONDS,beta=BYTES_PER_SECOND"),
        ("alpha=1,beta=2,gamma=3", "write alpha=SECONDS,beta=BYTES_PER_SECOND"),
    ],
)
def test_what_is_no_network(text, message):
    with refused(message):
        messages.read(text)


REGIME = {"from_bytes": 8, "alpha_seconds": 1e-4, "beta_seconds_per_byte": 1e-9, "relative_residual": 0.01}
FIT = {"library": "mpi", "collective": "all_reduce", "in_place": True, "num_ranks": 4, "regimes": [REGIME]}
DOCUMENT = {"num_ranks": 4, "num_nodes": 4, "fits": [FIT | {"collective": "broadcast"}, FIT]}


def collectives(folder, content=DOCUMENT):
    """A file as launch.collectives writes it."""
    path = folder / "network.json"
    path.write_text(json.dumps(content))
    return path


def test_a_network_is_that_of_a_file_of_collectives(tmp_path):
    network = messages.read(str(collectives(tmp_path)))
    (link,) = network("mpi")
    # Recursive halving and doubling: of 4 ranks, each on a node of its own, 4 messages.
    assert (link.alpha_seconds, link.beta_seconds_per_byte) == pytest.approx((1e-4 / 4, 1e-9 / 1.5))
    with refused("has no all-reduce over gloo, only over mpi; measure that too"):
        network("gloo")


NO_ALL_REDUCE, NO_FILE = (
    "has no fitted all-reduce of two ranks or more",
    "is not a JSON file of launch.collectives; write one with its --json",
)


@pytest.mark.parametrize(
    ("message", "content"),
    [
        *((NO_ALL_REDUCE, DOCUMENT | changes) for changes in ({"fits": []}, {"num_ranks": 1}, {"fits": [FIT | {"regimes": []}]})),
        *((NO_FILE, content) for content in ("", [], {"fits": 3}, {"fits": []})),
    ],
)
def test_another_file_and_one_without_all_reduces_are_mistakes(message, content, tmp_path):
    with refused(message):
        messages.read(str(collectives(tmp_path, content)))


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("algorithm", algorithms.ALL_REDUCES)
def test_messages_give_back_the_all_reduces_that_they_are_from(algorithm, num_ranks):
    measured = Regime(0, 1e-3, 1e-9, 0.0)
    for ranks_per_node in (1, num_ranks):
        link = messages.of_messages((measured,), algorithm, num_ranks, ranks_per_node)
        takes = algorithms.seconds("all_reduce", algorithm, 1e6, num_ranks, Machine(ranks_per_node, link, link))
        assert takes == pytest.approx(1e-3 + 1e-9 * 1e6)


def test_regimes_switch_at_the_size_of_a_message():
    regimes = (Regime(1024, 1e-5, 1e-8, 0.0), Regime(2**20, 1e-3, 1e-9, 0.0))
    assert [regime.from_bytes for regime in messages.of_messages(regimes, "ring", 4, 4)] == [256, 2**18]


@pytest.mark.parametrize(
    ("points", "alpha", "beta", "words"),
    [
        ([(1000, 1e-3)], 0.0, 1e-6, "one size, alpha taken for 0"),
        ([(1000, 2e-3), (3000, 4e-3)], 1e-3, 1e-6, "two sizes, without a residual"),
        ([(1000, 2e-3), (3000, 4e-3), (3000, 4e-3), (3000, 9.0)], 1e-3, 1e-6, "two sizes"),
        ([(1000, 2e-3), (3000, 4e-3), (9000, 10e-3)], 1e-3, 1e-6, "3 sizes, residual 0 %"),
        # The larger one was not slower: no latency can be told from these.
        ([(1000, 2e-3), (3000, 1e-3)], 2e-3, 1e-3 / 3000, "two sizes"),
    ],
)
def test_as_few_sizes_as_older_records_have_give_a_network_too(points, alpha, beta, words):
    (regime,), origin = messages.fitted(points)
    assert (regime.alpha_seconds, regime.beta_seconds_per_byte) == pytest.approx((alpha, beta))
    assert words in origin
