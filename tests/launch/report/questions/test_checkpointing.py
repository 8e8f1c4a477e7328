"""What checkpoints cost."""

import pytest

from tests.support.answers import line
from tests.support.made_records import made

IO = {
    "num_writes": 2, "written_bytes": 40_000_000, "num_reads": 1, "read_bytes": 20_000_000, "gather_seconds": 0.5, "write_seconds": 0.25,
    "read_seconds": 0.1, "wait_seconds": 0.0,
}  # fmt: skip


@pytest.mark.parametrize(("is_async", "wait_seconds", "stood_seconds"), [(False, 0.0, 0.85), (True, 0.05, 0.65)])
def test_training_stands_while_a_checkpoint_is_written_unless_in_the_background(is_async, wait_seconds, stood_seconds):
    settings = {"checkpoint_dir": "kept", "checkpoint_async": is_async}
    records = [made(settings=settings, checkpoint_io=IO | {"wait_seconds": wait_seconds}), made(backend="single", settings=settings)]
    row = line(records, "checkpoints")
    assert (row["backend"], row["training stood for (s)"]) == ("ddp", pytest.approx(stood_seconds))
    assert (row["size (MB)"], row["gathering each (s)"], row["writing each (s)"]) == pytest.approx((20, 0.25, 0.125))
    assert (row["writing (MB/s)"], row["reading (MB/s)"]) == pytest.approx((160, 200))
