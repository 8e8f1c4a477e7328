"""Memory of the GPU: the counters in a record, and what a run says that has none left."""

import pytest

from tests.gpu.running import train

pytestmark = pytest.mark.gpu

MIB = 2**20
SHARE = 0.1
# More than any GPU has, of activations; their inputs fit into main memory.
TOO_LARGE = "200000"
NUM_STEPS = 40
SHORT = ("--epochs", 1, "--no-step-breakdown")


def test_peaks_in_the_record(session, measured):
    record = train(session, "single", "memory-peaks", "--workload", "transformer", *SHORT, num_steps=NUM_STEPS)
    counted = {name: sizes[0] for name, sizes in vars(record.gpu_memory_by_rank).items()}
    allocated, reserved, used = counted.values()
    assert 0 < allocated <= reserved, f"{counted}"
    assert used is None or used >= reserved, f"{counted}"
    tensor_bytes = sum(sizes[0] for sizes in vars(record.tensor_bytes_by_rank.after_backward).values())
    assert tensor_bytes <= allocated, f"the tensors have {tensor_bytes} bytes, and at most {allocated} were allocated"
    measured |= {f"{name} (MiB)": size / MIB for name, size in counted.items() if size is not None}


def test_a_batch_that_is_too_large_is_told_in_one_line(session, measured):
    try:
        train(
            session, "single", "memory-exhausted", "--workload", "transformer-base", "--batch-size", TOO_LARGE, *SHORT, num_steps=NUM_STEPS
        )
    except AssertionError as why:
        measured["error"] = str(why)
    else:
        pytest.skip(f"a batch of {TOO_LARGE} fits")
    assert "out of GPU memory" in measured["error"], measured["error"]
