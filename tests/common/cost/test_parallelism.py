"""The data-parallel degree, the shard of each rank, and what a backend cannot train."""

import pytest

from common import backends
from common.config import Settings
from common.cost import parallelism
from common.declarations import Backend
from tests.support.mistakes import refused
from tests.support.sound_traps import LOOK_WRONG
from tests.support.user_models import BEGINNING, settings_of, written

# Declarations as in the files of frameworks/, without running them.
DECLARED = {
    "replicated": Backend(),
    "served": Backend(num_servers=1),
    "alone": Backend(one_rank=True),
    "whole": Backend(model_parallel="all", divides="num_heads", models=("Decoder",)),
    "threads_of_two": Backend(model_parallel="threads"),
    "apart": Backend(untied=True),
    "staged": Backend(same_parameters=("2",)),
}
PAIRED = Settings(threads=2)
TRANSFORMER = Settings(workload="transformer")


@pytest.fixture(autouse=True)
def _declared(monkeypatch):
    monkeypatch.setattr(backends, "declared", lambda: DECLARED)


@pytest.mark.parametrize(
    ("name", "settings", "num_ranks", "degree"),
    [
        ("replicated", Settings(), 3, 3),
        ("served", Settings(), 3, 2),
        ("served", Settings(), 2, 1),
        ("alone", Settings(), 1, 1),
        ("a_file_of_a_test", Settings(), 3, 3),
        ("apart", Settings(workload="transformer-1b"), 3, 3),
        ("replicated", Settings(workload="transformer-gpt2"), 3, 3),
        ("whole", TRANSFORMER, 4, 1),
        ("threads_of_two", PAIRED, 4, 2),
        ("threads_of_two", PAIRED, 2, 1),
    ],
)
def test_the_degree_is_the_number_of_models(name, settings, num_ranks, degree):
    assert parallelism.degree(name, settings, num_ranks) == degree


@pytest.mark.parametrize(
    ("name", "settings", "num_ranks", "message"),
    [
        ("served", Settings(), 1, "served takes at least 2 ranks, of which 1 is a server; choose other sizes"),
        ("alone", Settings(), 2, "alone runs with one rank; 2 ranks were started"),
        ("threads_of_two", PAIRED, 3, "threads_of_two takes a multiple of 2 ranks (--threads), and 3 is none"),
        ("whole", Settings(), 2, "whole does not train cnn; leave it out, or choose from the workloads transformer, transformer-lab, "),
        ("apart", Settings(workload="transformer-gpt2"), 2, "apart does not train transformer-gpt2; leave it out, or choose from the"),
        ("whole", TRANSFORMER, 8, "whole divides the 4 heads of transformer over its ranks, and 8 ranks do not divide them"),
        ("whole", Settings(workload="transformer-lab"), 4, "the 6 heads of transformer-lab"),
        ("served", Settings(scaling="strong", batch_size=16), 4, "served: a global batch of 16 is not divisible into 3 equal shards"),
    ],
)
def test_what_a_backend_cannot_train_has_a_reason(name, settings, num_ranks, message):
    with refused(message):
        parallelism.degree(name, settings, num_ranks)


def test_a_model_of_which_a_step_leaves_out_a_part_is_for_ranks_that_need_not_use_the_same(tmp_path):
    settings = settings_of(written(tmp_path, BEGINNING + LOOK_WRONG["experts"]))
    assert parallelism.degree("staged", settings, 2) == 2
    with refused("staged@2 needs ranks that use the same parameters, and a step of mine may leave experts.0.bias out; choose staged"):
        parallelism.degree("staged@2", settings, 2)


@pytest.mark.parametrize(
    ("num_ranks", "degree", "indices"),
    [
        (4, 4, [0, 1, 2, 3]), (4, 2, [0, 0, 1, 1]), (4, 1, [0, 0, 0, 0]), (6, 3, [0, 0, 1, 1, 2, 2]),
        # A server beside its workers.
        (2, 1, [0, 0]), (3, 2, [0, 1, 1]), (5, 4, [0, 1, 2, 3, 3]),
    ],
)  # fmt: skip
def test_consecutive_ranks_share_a_shard(num_ranks, degree, indices):
    assert [parallelism.shard_of(rank, num_ranks, degree) for rank in range(num_ranks)] == [(index, degree) for index in indices]
