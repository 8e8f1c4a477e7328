"""How models are cut into stages, where the stages are, and what cannot be cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import workloads
from common.config import Settings
from common.cost import parallelism
from common.model import pipelining
from common.model.cnn import Cnn
from common.model.decoder import Decoder

if not hasattr(Settings, "pipeline_schedule"):
    pytest.skip("no backend is a pipeline", allow_module_level=True)

SMALL = workloads.WORKLOADS["transformer"].model


@pytest.mark.parametrize(
    ("model", "num_ranks", "stages"),
    [
        (Cnn(), 1, [(0, 4)]),
        # Nine tenths of the FLOPs are conv2's, and of the parameters dense1's.
        (Cnn(), 2, [(0, 2), (2, 4)]),
        (Cnn(), 4, [(0, 1), (1, 2), (2, 3), (3, 4)]),
        # The embedding and a whole block; the other block and the head.
        (SMALL, 2, [(0, 3), (3, 6)]),
        # The feed-forward halves have more FLOPs than the attention.
        (SMALL, 4, [(0, 2), (2, 3), (3, 4), (4, 6)]),
    ],
)
def test_the_stages_of_a_model(model, num_ranks, stages):
    assert pipelining.stages_of(model, num_ranks) == stages


@pytest.mark.parametrize(
    ("settings", "num_ranks", "local_batch", "reason"),
    [
        (Settings(), 4, 8, None),
        (Settings(), 5, 8, "pipeline cuts cnn into at most 4 stages, and 5 ranks have one each; choose fewer"),
        (Settings(), 2, 6, "pipeline: 4 micro-batches do not divide the batch of 6 samples; choose other --microbatches"),
        (Settings(pipeline_schedule="naive"), 2, 7, None),
        (Settings(microbatches=2), 4, 8, "at least as many micro-batches as its 4 stages, and 2 are fewer; raise --microbatches"),
        (Settings(pipeline_schedule="gpipe", microbatches=2), 4, 8, None),
    ],
)
def test_what_a_pipeline_cannot_train_has_a_reason(settings, num_ranks, local_batch, reason):
    problem = parallelism.pipeline_problem("pipeline", settings, Cnn(), num_ranks, local_batch)
    assert problem is None if reason is None else reason in problem


def best_cut(costs, num_stages):
    """As pipelining.cut, by trying all cuts, the first stages short first; a deep model has too many."""
    cuts = [(0, *inner, len(costs)) for inner in itertools.combinations(range(1, len(costs)), num_stages - 1)]

    def most_expensive(bounds):
        stages = [costs[start:end] for start, end in itertools.pairwise(bounds)]
        return tuple(max(sum(part[kind] for part in stage) for stage in stages) for kind in (0, 1))

    return min(cuts, key=most_expensive)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), min_size=1, max_size=9), st.data())
def test_the_cut_is_that_of_all_cuts(costs, data):
    num_stages = data.draw(st.integers(1, len(costs)))
    assert pipelining.cut(costs, num_stages) == best_cut(costs, num_stages)


def test_a_deep_model_is_cut():
    stages = pipelining.stages_of(Decoder(64, 1, 200, 16), 16)
    assert len(stages) == 16
    assert {stage.end - stage.start for stage in stages[1:-1]} <= {25, 26}


def test_the_first_rank_of_1f1b_has_most_under_way_and_gpipes_ranks_all():
    assert [pipelining.num_under_way("1f1b", rank, 4, 8) for rank in range(4)] == [4, 3, 2, 1]
    assert [pipelining.num_under_way("gpipe", rank, 4, 8) for rank in range(4)] == [8] * 4
    assert pipelining.num_under_way("1f1b", 0, 4, 2) == 2
