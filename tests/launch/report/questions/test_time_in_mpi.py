"""Time in MPI of traced runs."""

import pytest

from tests.support.answers import section
from tests.support.made_records import made

KINDS = {
    "control": {"num_calls": 806, "size_bytes": 16120, "seconds": 6.66},
    "payload": {"num_calls": 212, "size_bytes": 326e6, "seconds": 1.61},
}  # fmt: skip


def traced(kinds, bandwidth=None, **changes):
    rank_0 = {"communication_seconds": 8.28, "kinds": kinds, "payload_bytes_per_second": bandwidth}
    return made(num_ranks=2, settings={"trace": "mpi"}, mpi_profile={"ranks": {"0": rank_0}, "problems": []}, **changes)


@pytest.mark.parametrize(
    ("kinds", "bandwidth", "end", "row"),
    [
        (
            KINDS, 202e6, "6.66 s in control (806 calls of 20 bytes on average), 1.61 s in payload (326 MB at 202 MB/s).",
            ["806", "6.66", "212", "326.00", "1.61", "202"],
        ),
        (KINDS | {"payload": dict.fromkeys(KINDS["payload"], 0)}, None, ", no payload.", ["806", "6.66", "0", "0.00", "0.00"]),
        (None, None, "does not separate control from payload.", []),
    ],
)  # fmt: skip
def test_control_and_payload_of_traced_runs(kinds, bandwidth, end, row):
    answer = section([made(num_ranks=2), traced(kinds, bandwidth, stamp="20260102-000000")], "mpi")
    assert answer.sentences[0].startswith("cnn, ddp at 2 ranks: rank 0 spent 8.28 s in MPI")
    assert answer.sentences[0].endswith(end)
    assert answer.tables[0].texts == [["cnn", "ddp", "2", "8.28", *row]]
