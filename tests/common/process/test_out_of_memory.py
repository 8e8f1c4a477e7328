"""Errors of exhausted memory in one line with the bytes asked for, and the kernel's count of what it killed."""

import pytest

from common.process import ending, out_of_memory
from common.process.messages import Place

GPU = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 139.81 GiB of which 11.50 MiB is free. Including "
    "non-PyTorch memory, this process has 139.79 GiB memory in use."
)
CPU = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 8589934592 bytes. "
TENSORFLOW = (
    "{{function_node __wrapped__MatMul}} OOM when allocating tensor with shape[65536,1024] and type %s on "
    "/job:localhost/replica:0/task:0/device:%s:0 by allocator bfc [Op:MatMul]"
)


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (RuntimeError(GPU), "out of GPU memory, 2,684,354,560 bytes (2.50 GiB) more were asked for; "),
        (RuntimeError(CPU), "out of memory, 8,589,934,592 bytes (8.00 GiB) more were asked for; "),
        (MemoryError("Unable to allocate 8.00 GiB for an array"), "out of memory, 8,589,934,592 bytes (8.00 GiB) more were asked for; "),
        (MemoryError(), "out of memory; "),
        (OSError(12, "Cannot allocate memory"), "out of memory; "),
        (RuntimeError("std::bad_alloc"), "out of memory; "),
        (RuntimeError(TENSORFLOW % ("float", "GPU")), "out of GPU memory, 268,435,456 bytes (0.25 GiB) more were asked for; "),
        (RuntimeError(TENSORFLOW % ("double", "CPU")), "out of memory, 536,870,912 bytes (0.50 GiB) more were asked for; "),
        (RuntimeError(TENSORFLOW % ("bfloat16", "CPU")), "out of memory, 134,217,728 bytes (0.12 GiB) more were asked for; "),
        (RuntimeError(TENSORFLOW % ("variant", "CPU")), "out of memory; "),
        (RuntimeError("CUDA error: out of memory"), "out of GPU memory; "),
    ],
)
def test_exhausted_memory_is_one_line_without_a_traceback(problem, line, capsys):
    status, error = ending.describe_failure(problem, Place(2, 3, 9))
    assert (status, error) == (1, f"in step 3/9 of epoch 2: {line}{out_of_memory.HELP}")
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("problem", [RuntimeError("Connection closed by peer"), OSError(28, "No space left on device"), KeyError("memory")])
def test_another_error_is_not_of_memory(problem):
    assert out_of_memory.describe(problem) is None


@pytest.mark.parametrize(
    ("text", "num"), [("oom_kill 3\n", 3), ("pgfault 7\noom_kill 0\nnuma_hit 1\n", 0), ("pgfault 7\n", None), (None, None)]
)
def test_the_kernel_counts_what_it_kills(text, num, tmp_path):
    if text is not None:
        (tmp_path / "vmstat").write_text(text)
    assert out_of_memory.num_kills(tmp_path / "vmstat") == num
