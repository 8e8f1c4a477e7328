"""The transport of gradients: Horovod over Gloo, DistributedDataParallel over MPI, and communication by hand."""

import os
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from common.config import Settings
from common.ranks.launcher_variables import Ranks
from frameworks.shared.horovod import horovod
from frameworks.shared.pytorch import distributed_data_parallel, mpi_tensors, process_group
from frameworks.shared.pytorch.collective_names import is_collective
from tests.support.mistakes import refused


@pytest.mark.parametrize(
    ("places", "slots"),
    [
        ([("a", 0)], [(0, 1, 0, 1)]),
        ([("a", 0), ("a", 1)], [(0, 2, 0, 1), (1, 2, 0, 1)]),
        ([("a", 0), ("a", 1), ("b", 0), ("b", 1)], [(0, 2, 0, 2), (1, 2, 0, 2), (0, 2, 1, 2), (1, 2, 1, 2)]),
        # Ranks that take turns over the hosts, and hosts of different sizes.
        ([("a", 0), ("b", 0), ("a", 1), ("b", 1)], [(0, 2, 0, 2), (0, 2, 1, 2), (1, 2, 0, 2), (1, 2, 1, 2)]),
        ([("a", 0), ("a", 1), ("b", 0)], [(0, 2, 0, 2), (1, 2, 0, 1), (0, 1, 1, 2)]),
    ],
)
def test_horovod_is_told_the_place_of_each_rank(places, slots):
    slot_infos = horovod.slots_of(places)
    assert [(slot.local_rank, slot.local_size, slot.cross_rank, slot.cross_size) for slot in slot_infos] == slots
    assert [(slot.rank, slot.size, slot.hostname) for slot in slot_infos] == [
        (rank, len(places), host) for rank, (host, _) in enumerate(places)
    ]


def test_under_horovodrun_horovod_keeps_its_own_server(monkeypatch):
    before = dict(os.environ)
    horovod.begin_over_gloo(Ranks(0, 2, 0, 2, "horovodrun"))
    assert os.environ == before


def test_over_gloo_horovod_waits_while_other_runs_have_their_turns(monkeypatch):
    gathered = iter([[("here", 0), ("here", 1)], [("127.0.0.1", 5)]])
    monkeypatch.setattr(horovod, "gathered", lambda *_: next(gathered))
    monkeypatch.setattr(horovod, "serve_rendezvous", lambda *_: 5)
    monkeypatch.setattr(os, "environ", {})
    horovod.begin_over_gloo(Ranks(0, 2, 0, 2, "MPICH/Intel PMI"))
    # Horovod's own limit is 30 s.
    assert int(os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"]) > 600


def built(nccl, over_mpi):
    """What is asked of a Horovod that exchanges nothing."""
    return SimpleNamespace(
        init=lambda: None, size=lambda: 1, nccl_built=lambda: nccl, mpi_enabled=lambda: over_mpi, mpi_built=lambda: over_mpi
    )  # fmt: skip


@pytest.mark.parametrize(
    ("on_gpu", "nccl", "over_mpi", "transport"),
    [
        (False, 0, True, "mpi"), (False, 0, False, "gloo"), (False, 21805, True, "mpi"),
        (True, 21805, True, "nccl"), (True, 21805, False, "nccl"), (True, 0, True, "mpi"),
    ],
)  # fmt: skip
def test_the_transport_is_what_horovod_uses(on_gpu, nccl, over_mpi, transport, monkeypatch):
    monkeypatch.setenv("HOROVOD_TIMELINE", "DYNAMIC")
    assert horovod.begin(built(nccl, over_mpi), Settings(), Ranks(), on_gpu) == transport


@pytest.mark.parametrize("value", ["gloo", "GLOO"])
def test_gloo_under_the_controller_of_mpi_is_refused(value, monkeypatch):
    monkeypatch.setenv("HOROVOD_TIMELINE", "DYNAMIC")
    monkeypatch.setenv("HOROVOD_CPU_OPERATIONS", value)
    with refused("MPI controller crashes with HOROVOD_CPU_OPERATIONS=gloo; unset it"):
        horovod.begin(built(0, True), Settings(), Ranks(), False)
    assert horovod.begin(built(0, False), Settings(), Ranks(), False) == "gloo"
    monkeypatch.setenv("HOROVOD_CONTROLLER", value)
    assert horovod.begin(built(0, True), Settings(), Ranks(), False) == "mpi"


@pytest.mark.parametrize(
    ("begin", "message"),
    [
        (lambda: horovod.begin(built(0, True), Settings(transport="gloo"), Ranks(), True), "cpu, or leave gloo out for NCCL or MPI"),
        (lambda: mpi_tensors.begin(Ranks(), torch.device("cuda", 0)), "use --device cpu, or leave mpi out for NCCL"),
        (
            lambda: horovod.begin(built(0, True), Settings(), Ranks(0, 2, 0, 2, "torchrun"), False),
            "torchrun started 2 ranks, Horovod sees 1; start with the mpiexec",
        ),
    ],
)
def test_gradients_that_a_transport_does_not_take_and_ranks_that_it_does_not_see_are_refused(begin, message, monkeypatch):
    monkeypatch.setenv("HOROVOD_TIMELINE", "DYNAMIC")
    with refused(message):
        begin()


@pytest.mark.parametrize(
    ("present", "names"),
    [
        (["all_reduce", "all_gather_single", "all_gather_into_tensor"], {"all_reduce": 1, "all_gather_single": 2}),
        (["all_reduce", "all_gather_into_tensor"], {"all_reduce": 1, "all_gather_into_tensor": 2}),
        (["all_reduce", "all_gather_tensor"], {"all_reduce": 1, "all_gather_tensor": 2}),
    ],
)
def test_collectives_have_the_names_of_the_pytorch_that_is_there(present, names):
    owner = SimpleNamespace(**dict.fromkeys(present))
    assert process_group.named_in(owner, {"all_reduce": 1, "all_gather_single": 2}) == names


@pytest.mark.parametrize(("device", "share_gpu", "transport"), [("cuda", False, "nccl"), ("cuda", True, "gloo"), ("cpu", False, "gloo")])
def test_gradients_of_ranks_that_share_a_gpu_go_over_gloo(device, share_gpu, transport):
    assert process_group.transport_of(torch.device(device), SimpleNamespace(share_gpu=share_gpu)) == transport


class ByHand:
    """A trainer that all-reduces 12 bytes and 8 after the backward pass."""

    def __init__(self):
        self.log = []
        self.all_reduce = lambda tensor: self.log.append(tensor.numel())

    def exchange_gradients(self):
        for size in (3, 2):
            self.all_reduce(torch.ones(size))

    def train(self):
        self.exchange_gradients()


def test_every_exchange_by_hand_is_counted_by_its_own_bytes_and_left_out():
    trainer = ByHand()
    communication = process_group.communication_by_hand(trainer, "exchange_gradients", owner=trainer)
    assert communication.profiled(trainer.train).operations == {"all_reduce": (2, 20)}
    with communication.without_communication():
        assert communication.profiled(trainer.train).operations == {}
    trainer.train()
    assert trainer.log == [3, 2, 3, 2]


def test_what_a_rank_contributes_to_a_call_is_what_it_sends():
    sent, received = torch.ones(2), torch.ones(4)
    operations = [SimpleNamespace(op=op, tensor=tensor) for op, tensor in ((dist.isend, sent), (dist.irecv, received))]
    # Of two tensors the first one receives.
    tensors = ((received, sent), {}), (([received], sent), {}), ((received,), {"input": sent}), ((), {"tensor": sent}), ((operations,), {})
    for arguments, settings in tensors:
        assert process_group.contributed(arguments, settings) == [sent]
    assert process_group.contributed((operations[1:],), {}) == process_group.contributed(([],), {}) == []


@pytest.mark.parametrize(
    ("name", "is_all_reduce"),
    [
        ("gloo:all_reduce", True), (mpi_tensors.ALL_REDUCE, True), ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", True),
        # RCCL's kernel of every collective.
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", True),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", False), ("gloo:send", False),
    ],
)  # fmt: skip
def test_the_all_reduces_of_buckets_are_counted_by_their_names(name, is_all_reduce):
    assert (distributed_data_parallel.ALL_REDUCE.search(name) is not None) == is_all_reduce


def test_the_profiler_s_names_of_what_a_hook_sends_are_those_of_collectives():
    assert is_collective(mpi_tensors.ALL_REDUCE)
    assert not is_collective("aten::conv2d")
