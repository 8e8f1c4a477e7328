"""The network of NCCL, from lines of its log."""

import pytest

from common.process import nccl_log
from common.process.ranks import Ranks

# As NCCL and aws-ofi-nccl print them.
SOCKET = """n1:7:7 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.
n1:7:9 [0] NCCL INFO NET/Socket : Using [0]hsn0:10.1.0.1<0>
n1:7:9 [0] NCCL INFO Using network Socket
"""
LIBFABRIC = """n1:7:9 [0] NCCL INFO NET/Plugin: Loaded net plugin AWS Libfabric (v8)
n1:7:9 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.9.1-aws
n1:7:9 [0] NCCL INFO NET/OFI Selected Provider is cxi (found 2 nics)
n1:7:9 [0] NCCL INFO Using network AWS Libfabric
"""
SINCE_2_27 = """n1:7:9 [0] NCCL INFO Initialized NET plugin IB
n1:7:9 [0] NCCL INFO Assigned NET plugin IB to comm
n1:7:9 [0] NCCL INFO Using network IB
"""


@pytest.mark.parametrize(
    ("log", "network"),
    [(SOCKET, "Socket"), (LIBFABRIC, "AWS Libfabric (aws-ofi-nccl 1.9.1-aws)"), (SINCE_2_27, "IB"), ("", None), ("NCCL INFO x", None)],
)
def test_the_network_is_that_of_the_log(log, network):
    assert nccl_log.network(log) == network


@pytest.mark.parametrize(
    ("ranks", "environ", "logs"),
    [
        (Ranks(0, 8, 0, 4), {}, True), (Ranks(1, 8, 1, 4), {}, False), (Ranks(0, 4, 0, 4), {}, False),
        (Ranks(0, 8, 0, 4), {"NCCL_DEBUG": "WARN"}, False),
    ],
)  # fmt: skip
def test_rank_0_of_several_nodes_lets_nccl_log_unless_the_user_does(ranks, environ, logs):
    before = dict(environ)
    number = nccl_log.begin(ranks, environ)
    assert (number is not None) == logs
    if number is None:
        assert (environ, nccl_log.end(number)) == (before, None)
        return
    # As NCCL opens it.
    with open(environ["NCCL_DEBUG_FILE"], "w") as file:
        file.write(SOCKET)
    assert nccl_log.end(number) == "Socket"
