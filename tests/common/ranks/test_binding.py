"""The cores and the GPU of a rank, and oversubscription."""

import ast
import contextlib
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from common.config import Settings
from common.declarations import ROOT
from common.ranks import binding
from common.ranks.binding import GPU_ORDER_VARIABLE, VISIBLE_GPUS, core_of_threads, cores_for, gpu_for, num_cores
from common.ranks.launcher_variables import Ranks
from common.training import program
from tests.support.mistakes import refused

# Four cores with two threads each, numbered as Linux does on most machines, and as on some.
SIBLINGS = {0: 0, 1: 1, 2: 2, 3: 3, 4: 0, 5: 1, 6: 2, 7: 3}
NEIGHBOURS = {0: 0, 1: 0, 2: 2, 3: 2, 4: 4, 5: 4, 6: 6, 7: 6}


@pytest.mark.parametrize(
    ("core_of", "allowed", "threads", "used_cores"),
    [
        ({}, range(5), 3, [{0, 1, 2}, {3, 4, 0}]),
        ({}, {7, 5, 6}, 1, [{5}, {6}, {7}, {5}]),
        # The launcher has bound the rank: the local rank does not matter.
        ({}, {4, 5}, 2, [{4, 5}, {4, 5}]),
        ({}, {4}, 2, [{4}, {4}]),
        (SIBLINGS, range(8), 1, [{0}, {1}, {2}, {3}, {4}, {5}]),
        (NEIGHBOURS, range(8), 2, [{0, 2}, {4, 6}, {1, 3}]),
        (NEIGHBOURS, {2, 3, 4}, 1, [{2}, {4}, {3}, {2}]),
    ],
)
def test_each_rank_gets_the_next_cores_and_a_physical_one_before_any_gets_a_second_thread(core_of, allowed, threads, used_cores):
    assert [cores_for(set(allowed), rank, threads, core_of) for rank in range(len(used_cores))] == used_cores


@pytest.mark.parametrize(
    ("lists", "core_of", "num"),
    [
        (["0,2", "1,3", "0,2", "1,3"], {0: 0, 1: 1, 2: 0, 3: 1}, 2),
        (["0-1", "0-1", "2-3", "2-3"], {0: 0, 1: 0, 2: 2, 3: 2}, 2),
        # Where Linux does not tell, each thread is a core.
        ([], {}, 4),
    ],
)
def test_siblings_are_read_from_linux(lists, core_of, num, tmp_path):
    for number, text in enumerate(lists):
        path = tmp_path / f"cpu{number}" / "topology"
        path.mkdir(parents=True)
        (path / "thread_siblings_list").write_text(f"{text}\n")
    assert core_of_threads(tmp_path) == core_of
    assert num_cores(range(4), core_of) == num


@pytest.mark.parametrize(("settings", "num_cores_of_rank"), [(Settings(), 1), (Settings(threads=2), 2), (Settings(cores_per_rank=3), 3)])
def test_a_rank_gets_its_cores_from_those_of_this_process(settings, num_cores_of_rank, monkeypatch):
    bound = []
    monkeypatch.setattr(program.machine, "keep_large_buffers", lambda: None)
    monkeypatch.setattr(program.binding, "bind", bound.append)
    allowed = os.sched_getaffinity(0)
    cores = program.prepare_process(Ranks(), settings)
    assert cores <= allowed
    assert len(cores) == min(num_cores_of_rank, len(allowed))
    assert program.prepare_process(Ranks(), dataclasses.replace(settings, bind=False)) == allowed
    assert bound == [cores]


@pytest.mark.parametrize(
    ("num_gpus", "local_rank", "local_size", "order", "chosen", "gpu"),
    [
        (4, 3, 4, "local", None, 3), (4, 3, 4, "reversed", VISIBLE_GPUS[0], 0), (4, 1, 2, "reversed", None, 2),
        *((1, 3, 4, "reversed", name, 0) for name in VISIBLE_GPUS),
        (4, 4, 5, "local", VISIBLE_GPUS[0], "5 ranks on a node with 4 GPUs"),
        # The launcher has not selected one GPU per rank.
        (1, 1, 2, "local", None, "2 ranks on a node with 1 GPU;"),
    ],
)  # fmt: skip
def test_a_rank_takes_the_gpu_of_its_local_rank_and_shares_none_unless_it_may(
    num_gpus, local_rank, local_size, order, chosen, gpu, monkeypatch
):
    monkeypatch.setattr(os, "environ", {GPU_ORDER_VARIABLE: order} | ({chosen: "2"} if chosen else {}))
    ranks = Ranks(local_rank, local_size, local_rank, local_size)
    with refused(gpu) if isinstance(gpu, str) else contextlib.nullcontext():
        assert gpu_for(num_gpus, ranks) == gpu
    del os.environ[GPU_ORDER_VARIABLE]
    assert gpu_for(num_gpus, ranks, may_share=True) == local_rank % num_gpus


BIND_AND_LOOK = """
import os, sys, threading
from common.ranks.binding import bind
done = threading.Event()
threading.Thread(target=done.wait, daemon=True).start()
bind({int(sys.argv[1])})
later = threading.Thread(target=done.wait, daemon=True)
later.start()
print([sorted(os.sched_getaffinity(int(thread))) for thread in os.listdir("/proc/self/task")])
done.set()
"""


def test_binding_holds_for_the_threads_there_are_and_those_to_come():
    core = max(os.sched_getaffinity(0))
    done = subprocess.run([sys.executable, "-c", BIND_AND_LOOK, str(core)], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([[core]] * 3)


OWNED = (
    "OMP_PLACES", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_HW_SUBSET", "HOROVOD_THREAD_AFFINITY", "OMP_THREAD_LIMIT", "KMP_ALL_THREADS",
    "MKL_DOMAIN_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_MAX_THREADS", "TF_NUM_INTEROP_THREADS",
)  # fmt: skip
# What a run sets itself, what sets neither a binding nor a number, and a launcher's own binding.
LEFT = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "MKL_VERBOSE", "TF_CPP_MIN_LOG_LEVEL", "I_MPI_PIN", "MY_OMP_PLACES", "OMP_PLACES_OF_MINE")


def test_a_run_owns_its_binding_and_its_threads_and_nothing_else():
    environ = dict.fromkeys((*LEFT, *OWNED), "x")
    assert (set(binding.owned_variables(environ)), set(binding.without_owned_variables(environ))) == (set(OWNED), set(LEFT))


def looked(text, **variables):
    """What Python prints in a process of its own, with these variables."""
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=True, timeout=100
    )
    return done.stdout.strip()


IMPORT = """
import os, frameworks, torch
from common.ranks import binding
torch.ones(9) + 1
print((os.sched_getaffinity(0) == binding.INHERITED_CORES, binding.removed_variables, sorted({*binding.removed_variables} & {*os.environ})))
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a library can bind a process to some of its cores only where it has two")
def test_a_framework_that_is_imported_does_not_bind_the_process_by_a_variable():
    variables = {"OMP_PLACES": "threads", "OMP_PROC_BIND": "spread", "GOMP_CPU_AFFINITY": "0"}
    assert ast.literal_eval(looked(IMPORT, **variables)) == (True, variables, [])


EXPECT = """
import frameworks
from common.ranks import binding
try:
    binding.expect_unbound()
except Exception as problem:
    print(problem)
"""
LIBGOMP = next(Path(sys.prefix).glob("lib/python3*/site-packages/torch/lib/libgomp*"), None)


@pytest.mark.skipif(LIBGOMP is None, reason="this PyTorch has no libgomp of its own")
@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"LD_PRELOAD": str(LIBGOMP), "MKL_NUM_THREADS": "1"}, ""),
        (
            {"LD_PRELOAD": str(LIBGOMP), "OMP_PROC_BIND": "true"},
            "OMP_PROC_BIND was read by the OpenMP library that LD_PRELOAD loads; unset it",
        ),
    ],
)
def test_a_library_that_was_there_before_python_is_named(variables, message):
    assert looked(EXPECT, **variables) == message


def test_a_torchrun_that_has_bound_itself_is_named(monkeypatch):
    monkeypatch.setenv(binding.TORCHRUN, "7")
    binding.expect_unbound()
    monkeypatch.setattr(binding, "removed_variables", {"GOMP_CPU_AFFINITY": "0", "MKL_NUM_THREADS": "2"})
    with refused("GOMP_CPU_AFFINITY was read by torchrun", "; unset it"):
        binding.expect_unbound()


def test_a_matrix_names_the_variables_also_where_importing_a_backend_has_removed_them(monkeypatch):
    monkeypatch.setattr(binding, "removed_variables", {"OMP_PROC_BIND": "true"})
    monkeypatch.setenv("MKL_NUM_THREADS", "2")
    assert binding.ignored_variables({"OMP_PLACES": "cores"}).keys() >= {"OMP_PROC_BIND", "MKL_NUM_THREADS", "OMP_PLACES"}


@pytest.mark.parametrize(
    ("cores_of_ranks", "cores_per_rank", "core_of", "quota_cores", "crowded"),
    [
        ([{0}, {1}], 1, {}, None, False),
        ([{0}, {1}, {0}], 1, {}, None, True),
        # Not bound: all ranks may run on all cores.
        ([{0, 1}] * 2, 1, {}, None, False),
        ([{0, 1}] * 3, 1, {}, None, True),
        # A launcher has bound some of them to one core.
        ([{0, 1, 2, 3}, {0}, {0}], 1, {}, None, True),
        ([{0, 1, 2}, {3, 4, 0}], 3, {}, None, True),
        ([{0}], 2, {}, None, True),
        # Two hardware threads of one core.
        ([{0}, {4}], 1, SIBLINGS, None, True),
        ([{0, 4}, {1, 5}], 1, SIBLINGS, None, False),
        ([{0, 4}], 2, SIBLINGS, None, True),
        ([{0}, {1}], 1, {}, 2.0, False),
        ([{0, 1}], 2, {}, 1.5, True),
    ],
)
def test_ranks_are_oversubscribed_where_they_need_more_cores_than_they_run_on(
    cores_of_ranks, cores_per_rank, core_of, quota_cores, crowded
):
    assert binding.are_oversubscribed(cores_of_ranks, cores_per_rank, core_of, quota_cores) is crowded


def test_the_numa_nodes_of_cores_are_those_that_linux_shows(tmp_path):
    for core, node in ((0, 0), (1, 0), (2, 1)):
        (tmp_path / f"cpu{core}" / f"node{node}").mkdir(parents=True)
    assert [binding.numa_nodes_of(cores, tmp_path) for cores in ({0, 1}, {1, 2}, {2}, {7}, ())] == [[0], [0, 1], [1], [], []]
