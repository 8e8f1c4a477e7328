"""Forecasts from records that follow a model exactly: what goes in comes out, and what was not measured is refused or said."""

import pytest

from common.cost import parallelism
from common.errors import UserError
from launch.forecast.scaling import answer, fitting, forecasts
from launch.forecast.scaling.forecasts import Wish
from launch.report import collect, entries
from tests.support.made_records import made, step_breakdown, typed
from tests.support.running import ROOT

COMPUTE, ALPHA, BETA, NUM_BYTES, NUM_STEPS = 0.020, 1e-4, 1e-9, 4e6, 40
RANKS = (1, 2, 4, 8, 16)


def ring(num_ranks, num_bytes=NUM_BYTES):
    """The time of an all-reduce of the gradients on a ring."""
    return 2 * (num_ranks - 1) * (ALPHA + num_bytes / num_ranks * BETA)


def record(num_ranks, compute=COMPUTE, unexplained=0.001, batch=16, **changes):
    """A run whose steps compute, then exchange one buffer, of which a third of the computation's rest hides nothing."""
    step = compute + (ring(num_ranks) + unexplained if num_ranks > 1 else 0.0)
    num = float(num_ranks > 1)
    plain = [[size, ring(num_ranks, size)] for size in (2.0**10, 2.0**15, 2.0**20, NUM_BYTES)]
    breakdown = step_breakdown(compute=1000 * compute, exposed=0.0, num_ranks=num_ranks) | {
        "data_wait_seconds": [0.0] * num_ranks,
        "operations": {"all_reduce": {"num_calls": num, "num_bytes": num * NUM_BYTES}},
        "all_reduce_seconds_by_size": plain if num_ranks > 1 else None,
    }
    steps = {"step_seconds": [step] * NUM_STEPS, "train_seconds": [NUM_STEPS / 2 * step] * 2}
    steps |= {"losses": [1.0] * NUM_STEPS, "learning_rates": [0.1] * NUM_STEPS, "samples_per_epoch": 20 * batch * num_ranks}
    return made(num_ranks=num_ranks, transport="gloo", step_breakdown=breakdown, **(steps | changes))


def of(records, *ranks, **wish):
    (subject,), _ = forecasts.of(entries.comparisons(typed(records)), Wish(ranks or RANKS, **wish))
    return subject


def rows(subject):
    return {forecast.num_ranks: forecast for forecast in subject.forecasts}


def test_steps_that_follow_the_model_are_forecast_exactly():
    subject = of([record(1), record(2)], 4, 24, 32)
    expected = {size: COMPUTE + ring(size) + 0.001 for size in (4, 24, 32)}
    assert {size: rows(subject)[size].step_seconds for size in expected} == pytest.approx(expected, rel=1e-6)
    assert [forecast.kind for forecast in subject.forecasts] == ["measured", "measured", "forecast", "forecast", "forecast"]


def test_each_size_but_the_first_is_held_out_and_its_error_is_the_band():
    subject = of([record(1), record(2), record(4)], 8)
    assert [(test.num_ranks, test.fitted_on) for test in subject.held_out] == [(2, "1 and 4 ranks"), (4, "1 and 2 ranks")]
    assert [test.error for test in subject.held_out] == pytest.approx([0, 0], abs=1e-6)
    # From one rank and all-reduces alone the millisecond that steps take beside is not known.
    alone = of([record(1), record(2)], 4, 8)
    (error,) = [test.error for test in alone.held_out]
    step = COMPUTE + ring(2) + 0.001
    assert error == pytest.approx(-0.001 / step)
    once, twice = (rows(alone)[size] for size in (4, 8))
    assert once.high_seconds / once.step_seconds == pytest.approx(1 / (1 + error))
    assert twice.high_seconds / twice.step_seconds == pytest.approx((1 / (1 + error)) ** 2)
    assert once.low_seconds < once.step_seconds < once.high_seconds


def test_repeats_with_other_seeds_are_held_out_too():
    records = [record(size, repeat=repeat, compute=COMPUTE * (1 + 0.1 * repeat)) for size in (1, 2) for repeat in (0, 1)]
    seeds = of(records, 4).held_out[-1]
    assert (seeds.fitted_on, seeds.num_ranks) == ("other seeds", 2)
    assert seeds.error == pytest.approx(-0.002 / (1.1 * COMPUTE + ring(2) + 0.001), rel=1e-3)


def test_another_network_is_between_nodes():
    fast = of([record(1), record(2)], 32, network=None)
    slow_link = (fast.model.machine.inside[0]._replace(from_bytes=0, beta_seconds_per_byte=1e-7),)
    slow = of([record(1), record(2)], 32, network=lambda transport: slow_link)
    added = rows(slow)[32].step_seconds - rows(fast)[32].step_seconds
    assert added == pytest.approx(62 * NUM_BYTES / 32 * (1e-7 - BETA), rel=1e-3)
    assert fast.model.notes == (
        "The network between nodes was not measured and is taken for that inside a node; give --network for another.",
    )
    assert slow.model.notes == ()
    # Everything on one node: the other network is not used.
    on_one = of([record(1), record(2)], 32, network=lambda _: slow_link, ranks_per_node=32)
    assert rows(on_one)[32].step_seconds == rows(fast)[32].step_seconds


def test_the_knee_is_where_efficiency_falls_below_half():
    knee = of([record(1), record(2, unexplained=0.008)], 32).knee
    assert COMPUTE / (COMPUTE + ring(knee) + 0.008) == pytest.approx(0.5, abs=0.03)
    # Two ranks are already too many.
    assert of([record(1), record(2, unexplained=0.5)], 32).knee == 1
    # Beyond what is forecast it is not looked for.
    assert of([record(1), record(2)], 32).knee is None


def test_sizes_far_beyond_the_measured_ones_are_refused_and_those_of_one_backend_are_said():
    with pytest.raises(UserError, match=r"^33 ranks are more than 16 times the 2 that were measured; ask for 32 at most, or measure more$"):
        of([record(1), record(2)], 4, 33)
    records = [*(record(size) for size in (1, 2, 4)), *(record(size, backend="horovod_torch") for size in (1, 2))]
    subjects, _ = forecasts.of(entries.comparisons(typed(records)), Wish((64,)))
    assert {subject.backend: subject.impossible for subject in subjects} == {
        "ddp": {}, "horovod_torch": {64: "it is more than 16 times the 2 ranks that were measured"},
    }  # fmt: skip


def test_time_and_hours_of_a_run():
    subject = of([record(1), record(2)], 4)
    row = rows(subject)[4]
    # Of 20 samples of each of 16 and one that is dropped; both sizes take two epochs.
    num_steps = (20 * 16 * 2 + 1) // 64
    assert row.epochs == pytest.approx(2)
    assert row.run_seconds == pytest.approx(0.5 + 2 * (num_steps * row.step_seconds + 0.5))
    assert row.hours == pytest.approx(4 * row.run_seconds / 3600)
    few = [record(size, train_seconds=[0.2] * 4, samples_per_epoch=160 * size) for size in (1, 2)]
    assert of(few, 32).forecasts[-1].run_seconds is None


def test_slow_steps_slow_down_many_ranks_most():
    noisy = [COMPUTE] * (NUM_STEPS - 1) + [2 * COMPUTE]
    subject = of([record(1, step_seconds=noisy), record(2)], 4, 32)
    few, many = (forecast.parts.stragglers for forecast in subject.forecasts if forecast.parts)
    assert 0 < few < many


def test_epochs_of_oversubscribed_runs_count_and_their_steps_do_not():
    changes = {"accuracies": [0.5] * 5 + [0.98], "oversubscribed": True, "train_seconds": [1.0] * 6, "eval_seconds": [0.5] * 6}
    records = [record(1), record(2), record(8, **changes | {"step_seconds": [9.0] * 6, "losses": [1.0] * 6, "learning_rates": [0.1] * 6})]
    subject = of(records, 8)
    row = subject.forecasts[-1]
    assert (row.kind, row.num_ranks) == ("forecast", 8)
    assert row.step_seconds < 1
    assert row.epochs == pytest.approx(6, rel=0.1)


def test_strong_scaling_ends_where_a_rank_has_no_sample():
    strong = {"scaling": "strong", "workload_digest": "e" * 64, "samples_per_epoch": 320}
    subject = of([record(1, **strong), record(2, compute=COMPUTE / 2, **strong)], 4, 32)
    assert list(rows(subject)) == [1, 2, 4]
    assert "a global batch of 16 is not divisible into 32 equal shards" in subject.impossible[32]
    assert subject.forecasts[-1].parts.compute == pytest.approx(COMPUTE / 4)


WITHOUT = {"step_breakdown": None}


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([record(1)], "have one size of each backend"),
        ([record(2), record(2, repeat=1)], "have one size of each backend"),
        ([made(backend="single")], "no completed run of a distributed backend"),
        ([record(size, oversubscribed=True) for size in (1, 2)], "all of these runs were oversubscribed"),
        ([record(1), record(2, oversubscribed=True)], "have one size of each backend"),
        ([record(1) | WITHOUT, record(2) | WITHOUT], "have no step breakdown; train without --no-step-breakdown"),
    ],
)
def test_records_without_a_forecast(records, message):
    with pytest.raises(UserError, match=message) as problem:
        forecasts.of(entries.comparisons(typed(records)), Wish((16,)))
    assert "\n" not in str(problem.value)


def test_backends_without_a_model_are_left_out_with_the_reason():
    records = [record(1), record(2), *(record(size, backend="parameter_server") for size in (2, 4)), record(2, backend="fsdp")]
    subjects, left_out = forecasts.of(entries.comparisons(typed(records)), Wish((4,)))
    assert [subject.backend for subject in subjects] == ["ddp"]
    assert [sentence.split(", ", 2)[2] for sentence in left_out] == [
        "fsdp: no forecast, since there is one size, 2.",
        "parameter_server: no forecast, since the model is of data parallelism and pipelines.",
    ]


def test_every_forecast_of_the_reference_records_has_a_band():
    collected, _ = collect.collect([ROOT / "results" / "reference" / "two-cores"])
    subjects, left_out = forecasts.of(entries.comparisons(collected), Wish())
    beyond = [forecast for subject in subjects for forecast in subject.forecasts if forecast.kind != "measured"]
    assert len(subjects) == 24
    assert all(0 < forecast.low_seconds < forecast.step_seconds < forecast.high_seconds for forecast in beyond)
    section = answer.section(subjects, left_out)
    assert sum(sentence.startswith("For a proposal: ") for sentence in section.sentences) == 4
    assert all(len(table.columns) == len(row) for table in section.tables for row in table.rows)
    fitted = "inside a node: alpha and beta fitted to all-reduces of 5 sizes, residual"
    assert [subject.model.network for subject in subjects if not subject.model.network.startswith(fitted)] == []
    data = answer.as_json(subjects, left_out)
    assert {test["backend"] for test in data["held_out"]} == {subject.backend for subject in subjects}


def test_pooled_all_reduces_leave_out_oversubscribed_runs():
    records = [record(2), record(4, oversubscribed=True)]
    assert set(fitting.plain_all_reduces(entries.comparisons(typed(records)))) == {("ddp", 2)}


def test_how_many_stages_a_pipeline_may_have_follows_from_the_layers_that_were_given():
    def problem_at_8_ranks(layers):
        (run,) = typed([made("pipeline", 2, workload="transformer", settings={"layers": layers, "microbatches": 8})])
        return parallelism.problem("pipeline", fitting.settings_of("pipeline", run), 8)

    assert "at most 4 stages" in problem_at_8_ranks(1)
    assert problem_at_8_ranks(4) is None
