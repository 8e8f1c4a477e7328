"""Memory of the GPU: the counters in a record, and what a run says that has none left."""

from tests.gpu import data
from tests.gpu.checking import Skipped, Todo
from tests.gpu.running import train

MIB = 2**20
SHARE = 0.1
# More than any GPU has, of activations; their inputs fit into main memory.
TOO_LARGE = "200000"


def num_at_once(_):
    return 1


def todo(session):
    return [
        Todo("peaks in the record", lambda: peaks(session)),
        Todo("a batch that is too large is told in one line", lambda: exhausted(session)),
    ]


def peaks(session):
    """MiB of GPU memory in the record of a run."""
    session.expect_gpu()
    source = data.stories(session.scratch, 320, 64)
    record = train(session, "single", "memory-peaks", "--workload", "transformer", *source, "--epochs", "1", "--no-step-breakdown")
    found = {name: sizes[0] for name, sizes in record["gpu_memory_by_rank"].items()}
    allocated, reserved, used = found.values()
    assert 0 < allocated <= reserved, f"{found}"
    assert used is None or used >= reserved, f"{found}"
    held = sum(record["tensor_bytes_by_rank"]["after_backward"][name][0] for name in ("parameters", "gradients", "optimizer_state"))
    assert held <= allocated, f"the tensors have {held} bytes, and at most {allocated} were allocated"
    return {f"{name} (MiB)": size / MIB for name, size in found.items() if size is not None}


def exhausted(session):
    """What a run says that is out of GPU memory."""
    session.expect_gpu()
    source = data.stories(session.scratch, 320, 64)
    options = ("--workload", "transformer-base", *source, "--batch-size", TOO_LARGE, "--epochs", "1", "--no-step-breakdown")
    try:
        train(session, "single", "memory-exhausted", *options)
    except AssertionError as why:
        error = str(why)
        assert "out of GPU memory" in error, error
        return {"error": error}
    raise Skipped(f"a batch of {TOO_LARGE} fits")
