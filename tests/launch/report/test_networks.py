"""A note names the runs whose NCCL used TCP between nodes."""

import pytest

from launch.report import networks
from tests.support.made_records import made, on, typed


@pytest.mark.parametrize(
    ("chosen", "beginnings"),
    [
        ([None, None], []),
        (["Socket", "AWS Libfabric (aws-ofi-nccl 1.9.1-aws)"], ["NCCL used TCP between the nodes of 1 run:"]),
        (["Socket", "Socket"], ["NCCL used TCP between the nodes of 2 runs:"]),
        (["IB", None], []),
    ],
)
def test_runs_over_tcp_are_counted(chosen, beginnings):
    records = [record for repeat, name in enumerate(chosen) for record in on("here", [made(repeat=repeat)], nccl_network=name)]
    notes = networks.notes(typed(records))
    assert [note.partition(" it found")[0] for note in notes] == beginnings
