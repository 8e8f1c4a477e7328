"""What checkpoints cost."""

import pytest

from tests.support.answers import answered, line
from tests.support.made_records import made

IO = {
    "num_writes": 2, "written_bytes": 40_000_000, "num_reads": 1, "read_bytes": 20_000_000, "gather_seconds": 0.5, "write_seconds": 0.25,
    "read_seconds": 0.1, "wait_seconds": 0.0,
}  # fmt: skip


def test_training_stands_while_a_checkpoint_is_written_unless_in_the_background():
    kept = {"checkpoint_dir": "kept"}
    for is_async, wait, stood in ((False, 0.0, 0.85), (True, 0.05, 0.65)):
        settings = kept | {"checkpoint_async": is_async}
        records = [made(settings=settings, checkpoint_io=IO | {"wait_seconds": wait}), made(backend="single", settings=settings)]
        row = line(records, "checkpoints", backend="ddp")
        assert row["training stood for (s)"] == pytest.approx(stood)
        assert (row["size (MB)"], row["gathering each (s)"], row["writing each (s)"]) == pytest.approx((20, 0.25, 0.125))
        assert (row["writing (MB/s)"], row["reading (MB/s)"]) == pytest.approx((160, 200))


def test_there_is_no_table_without_checkpoints():
    assert "checkpoints" not in [one.key for one in answered([made()]).sections]
