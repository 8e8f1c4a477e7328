"""Before and after: what is slower, less accurate or larger beyond the noise, and nothing else."""

import pytest

from common.errors import UserError
from launch.report.questions import baseline
from tests.support.made_records import ended, made, not_reached, on, repeats, typed

BEFORE = [10.0, 10.1, 10.2]
OLD = {"stamp": "20250101-000000", "started_at": "2025-01-01T00:00:00Z"}


def changes(new, old):
    return baseline.compare(typed(new), typed(old)).changes


def verdicts(new, old):
    """Returns {measure: verdict} of the one entry of two sets."""
    return {change.measure.name: change.verdict for change in changes(new, old)}


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        ([12.0, 12.1, 12.2], "worse"),
        ([8.0, 8.1, 8.2], "better"),
        ([9.0, 10.1, 13.0], "no difference shown"),
        # significant, but within the tolerance: 3 %
        ([10.4, 10.4, 10.41], "no difference shown"),
        ([12.0], "not judged: too few runs"),
        ([12.0, 12.1], "not judged: too few runs"),
        ([12.0, None, 12.2], "worse"),
        ([None, None, 10.0], "worse"),
    ],
)
def test_a_time_is_worse_only_beyond_noise_and_tolerance(after, verdict):
    assert verdicts(repeats(after), repeats(BEFORE, **OLD))["time to solution (s)"] == verdict


@pytest.mark.parametrize(
    ("key", "measure", "before", "after", "verdict"),
    [
        ("samples_per_second", "samples/s", (100.0, 101.0, 102.0), (80.0, 81.0, 82.0), "worse"),
        ("samples_per_second", "samples/s", (100.0, 101.0, 102.0), (120.0, 121.0, 122.0), "better"),
        ("accuracy", "accuracy", (0.98, 0.981, 0.982), (0.961, 0.962, 0.963), "worse"),
        ("accuracy", "accuracy", (0.98, 0.981, 0.982), (0.975, 0.976, 0.977), "no difference shown"),
        ("accuracy", "accuracy", (0.98, 0.981, 0.982), (0.0, 0.0, 0.0), "worse"),
        ("accuracy", "accuracy", (0.98, 0.981, 0.0), (0.98, 0.981, 0.0), "no difference shown"),
        ("accuracy", "accuracy", (0.98, 0.981, 0.0), (0.0, 0.0, 0.0), "worse"),
        # Relative to 0 there is no ratio.
        ("accuracy", "accuracy", (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), None),
        ("peak_memory_bytes", "peak memory per rank (MiB)", (2**28, 2**28, 2**28), (2**29, 2**29, 2**29), "worse"),
        ("peak_memory_bytes", "peak memory per rank (MiB)", (2**29, 2**29, 2**29), (2**28, 2**28, 2**28), "better"),
    ],
)
def test_each_measure_has_its_direction(key, measure, before, after, verdict):
    old = [made(repeat=repeat, **{key: value}, **OLD) for repeat, value in enumerate(before)]
    new = [made(repeat=repeat, **{key: value}) for repeat, value in enumerate(after)]
    assert verdicts(new, old).get(measure) == verdict


def test_regressions_are_listed_with_change_and_interval():
    (line, rate) = baseline.worse(changes(repeats([12.0, 12.0, 12.0]), repeats([10.0, 10.0, 10.0], **OLD)))
    assert line == (
        "cnn, weak scaling, 1 rank: ddp is slower: time to solution (s) 10 before, 12 after "
        "(+20.0 %, 95 % interval of the ratio 1.20 to 1.20)."
    )
    assert "samples/s 100 before, 83.33 after" in rate


@pytest.mark.parametrize("lost", [[ended("failed")], [not_reached(samples_per_second=100.0)], [], [ended("timeout")]])
def test_an_entry_that_lost_its_time_is_worse_even_with_one_run_and_one_that_never_had_it_is_not(lost):
    new = [made(num_ranks=2), ended("failed", num_ranks=3), made(num_ranks=4), *lost]
    old = [made(num_ranks=2, **OLD), ended("failed", num_ranks=3, **OLD), made(**OLD)]
    first, *less_worse = baseline.worse(changes(new, old))
    assert first == "cnn, weak scaling, 1 rank: ddp had 10 time to solution (s) and has none."
    assert all("1 rank: ddp had 100 samples/s and has none." in sentence for sentence in less_worse)
    assert {change.entry.num_ranks for change in changes(new, old)} == {1, 2}


@pytest.mark.parametrize(
    ("new", "old", "sentence"),
    [
        ([made(seconds=20.0)], [made(**OLD)], "4 of 4 numbers could not be judged: one side has fewer than 3 runs. Use --repeats 6."),
        (repeats(BEFORE), repeats(BEFORE, **OLD), "Nothing that could be judged is slower, less accurate or larger beyond the noise."),
    ],
)
def test_without_regressions_a_sentence_states_it(new, old, sentence):
    compared = baseline.compare(typed(new), typed(old))
    changed = "Changed since the matrix begun at 2025-01-01T00:00:00Z: no version and no commit."
    assert baseline.section(compared).sentences == [sentence, changed]


def test_what_changed_between_the_sets_is_named():
    new = repeats([12.0, 12.1, 12.2])
    before = on(new[0]["settings"]["machine"], repeats(BEFORE, **OLD), packages={"torch": "2.0"})
    section = baseline.section(baseline.compare(typed(new), typed(before)))
    assert [row["verdict"] for row in section.tables[0].rows if row["measure"] == "time to solution (s)"] == ["worse"]
    assert "torch 2.0 to" in section.sentences[-1]


def test_a_set_is_compared_with_that_of_another_machine():
    before = on("there", repeats(BEFORE, **OLD))
    assert verdicts(repeats([12.0, 12.1, 12.2]), before)["time to solution (s)"] == "worse"
    with pytest.raises(UserError, match=r"several machines \(here, there\)"):
        changes(repeats(BEFORE), [*before, *repeats(BEFORE, num_ranks=2, **OLD)])


@pytest.mark.parametrize(
    ("old", "message"),
    [({"workload_digest": "e" * 64}, "trained different things"), ({"num_ranks": 2}, "no backend, workload and size in common")],
)
def test_two_sets_of_different_training_or_without_common_entries_are_refused(old, message):
    with pytest.raises(UserError, match=message):
        changes([made()], [made(**old, **OLD)])
