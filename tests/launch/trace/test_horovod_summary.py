"""The sums of Horovod's timeline: waits, late ranks and buffers."""

import pytest

from frameworks.shared.horovod.horovod_timeline import read
from launch.trace.horovod_summary import Summary, Waits, counted, describe
from launch.trace.sources import lane_for
from tests.frameworks.test_horovod_timeline import FUSED, FUSED_OPERATION, NAMES, NEGOTIATED, begin, end, tick


def summarized(events):
    summary = Summary()
    list(counted(read(events), summary))
    return summary


@pytest.mark.parametrize(
    ("ticks", "lateness"),
    [
        ([(0, 0), (1, 3000)], {1: Waits(1, 0.003, 0.003)}),
        ([(1, 0), (0, 1001)], {0: Waits(1, 0.001001, 0.001001)}),
        # Within one cycle rank 0 receives all ranks in their order.
        ([(0, 0), (1, 5), (2, 900)], {}),
        ([(0, 0), (2, 2000), (1, 8000)], {1: Waits(1, 0.008, 0.008)}),
        ([(0, 0)], {}),
    ],
)
def test_the_last_rank_is_late_unless_all_are_ready_in_one_cycle(ticks, lateness):
    events = [begin(1, 0, "NEGOTIATE_ALLREDUCE"), *(tick(1, ts, rank) for rank, ts in ticks), end(1, 9000)]
    summary = summarized(events)
    assert summary.lateness == lateness
    assert (summary.num_negotiations, summary.num_compared) == (1, len(ticks) > 1)


def test_summary_counts_a_buffer_once():
    summary = summarized([*NAMES, *NEGOTIATED, *FUSED, begin(1, 9000, "NEGOTIATE_ALLREDUCE")])
    assert summary.waits == {"grad.bias": Waits(2, 0.003002, 0.003002), "grad.weight": Waits(1, 0.003002, 0.003002)}
    assert summary.buffers_by_num_tensors == {2: 1}
    assert summary.max_buffer_bytes == summary.total_bytes == FUSED_OPERATION.size_bytes
    assert summary.activity_seconds == pytest.approx({"MEMCPY_IN_FUSION_BUFFER": 11e-6, "MPI_ALLREDUCE": 961e-6})
    assert summary.lateness == {1: Waits(2, 0.006, 0.003)}
    text = "\n".join(describe(summary))
    assert "1 collectives (1 ALLREDUCE) of 2.0 tensors on average" in text
    assert "rank 1 was last 2 times, by 3.00 ms on average" in text
    assert "known for 2 of 3 negotiations" in text
    assert "1 not finished" in text


def test_a_lane_is_used_again_once_it_is_free():
    ends = []
    assert [lane_for(ends, *span) for span in ((0, 5), (1, 6), (5, 8), (6, 9))] == [0, 1, 0, 1]
