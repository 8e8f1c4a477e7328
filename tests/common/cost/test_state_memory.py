"""A run whose state does not fit into memory is refused before it starts."""

import pytest

from common import workloads
from common.backends import settings_of
from common.config import Settings
from common.cost import state_memory
from common.declarations import PYTHON
from common.errors import UserError
from common.ranks import gpus, machine
from tests.support.sound_models import SOUND
from tests.support.user_models import BEGINNING

# Bytes of the parameters of transformer-1b in float32: 1.2 billion of them.
P = 4 * (2 * 256 * 2048 + 2048 + 24 * (4 * 2048**2 + 3 * 2048 * 5472 + 2 * 2048))
SETTINGS = Settings(workload="transformer-1b", optimizer="adam")


@pytest.mark.parametrize(
    ("name", "num_ranks", "parameters", "gradients", "optimizer_state"),
    [
        ("single", 1, 1, 1, 2),
        # DeepSpeed keeps no gradients but its shard's, also in stage 1.
        ("deepspeed_zero", 4, 1, 1 / 4, 3 / 4),
        ("deepspeed_zero@2", 8, 1, 1 / 8, 3 / 8),
        # Gradients in a buffer, and again as those of the masters.
        ("deepspeed_zero@3", 8, 1 / 8, 2 / 8, 3 / 8),
        ("fsdp@keep", 8, 1, 1 / 8, 2 / 8),
        # Of dealt parameters, the ranks' mean.
        ("zero_redundancy", 4, 1, 1, 2 / 4),
        # Ranks that divide a model divide its optimizer state too.
        ("tensor_parallel", 4, 1 / 4, 1 / 4, 2 / 4),
        ("pipeline_ddp", 4, 1 / 2, 1 / 2, 2 / 2),
        # Without a formula: of parameters and gradients one model on each rank, or on all but the server.
        ("parameter_server", 4, 3 / 4, 3 / 4, 0),
    ],
)
def test_what_a_rank_holds(name, num_ranks, parameters, gradients, optimizer_state):
    state = state_memory.state(name, settings_of(name, SETTINGS), num_ranks)
    assert list(state.values()) == pytest.approx([parameters * P, gradients * P, optimizer_state * P])


@pytest.mark.parametrize(("made", "number"), [("AdamW(p)", 2), ("Adam(p, amsgrad=True)", 3), ("SGD(p, momentum=0.9)", 1), ("SGD(p)", 0)])
def test_the_state_is_that_of_the_optimizer_of_a_file(made, number, tmp_path):
    text = f"\nLEARNING_RATE = 0.1\ndef optimizer(p):\n    return torch.optim.{made}\n"
    (tmp_path / "mine.py").write_text(BEGINNING + SOUND["mlp-mixer"] + text)
    state = state_memory.state("single", Settings(model=str(tmp_path / "mine.py")), 1)
    assert state["optimizer_state"] == number * state["parameters"]


def refusal(monkeypatch, *arguments, node=float("inf"), gpu=float("inf")):
    """The text of the UserError with this much free memory; None if there is none."""
    monkeypatch.setattr(machine, "available_bytes", lambda: node)
    monkeypatch.setattr(gpus, "most_free_bytes", lambda: gpu)
    try:
        state_memory.expect_room(arguments[0], workloads.resolve(SETTINGS, 1), *arguments[1:])
    except UserError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("name", "num_ranks", "num_local_ranks", "needed"),
    # On each rank also the initial parameters, which are whole.
    [("single", 1, 1, 5), ("ddp", 4, 2, 2 * 5), ("fsdp", 4, 4, 4 * (1 + 1)), ("fsdp", 8, 4, 4 * (1 / 2 + 1))],
)
def test_on_cpus_the_ranks_of_a_node_must_fit_into_its_memory(monkeypatch, name, num_ranks, num_local_ranks, needed):
    assert refusal(monkeypatch, name, num_ranks, num_local_ranks, "cpu", node=1.001 * needed * P, gpu=0) is None
    text = refusal(monkeypatch, name, num_ranks, num_local_ranks, "cpu", node=0.999 * needed * P)
    ranks = "its rank" if num_local_ranks == 1 else f"its {num_local_ranks} ranks"
    assert f"{needed * P / 1e9:.1f} GB on a node for {ranks}, and {0.999 * needed * P / 1e9:.1f} GB are free" in text
    assert "initial parameters 4.8 GB" in text
    assert "and 5.0 MB are free" in (refusal(monkeypatch, name, num_ranks, num_local_ranks, "cpu", node=5e6) or "")
    assert "; share them over more nodes, or choose a smaller workload or another backend (" in text


def test_on_gpus_a_rank_must_fit_into_one_and_the_initial_parameters_into_the_memory_of_the_node(monkeypatch):
    assert refusal(monkeypatch, "ddp", 4, 4, "cuda", node=4.001 * P, gpu=4.001 * P) is None
    assert refusal(monkeypatch, "ddp", 4, 4, "cuda", gpu=3.999 * P) == (
        "transformer-1b does not fit into memory with ddp at size 4: a rank's parameters 4.8 GB, gradients 4.8 GB, optimizer state 9.7 GB "
        "need 19.4 GB on each GPU, and 19.4 GB are free (activations come on top); share them over more GPUs, or choose a smaller workload "
        f"or another backend ({PYTHON} -m launch.memory)"
    )
    assert "19.4 GB on a node for its 4 ranks" in refusal(monkeypatch, "ddp", 4, 4, "cuda", node=3.999 * P)
