"""The table from records: medians, speed-ups only where they mean something, and only of runs that trained the same thing."""

import pytest

from common.errors import UserError
from launch.compare import COLUMNS, cells, first_to_target, markdown, rows

TIME, OWN, SINGLE = "time to solution (s)", "speed-up vs own 1 rank", "speed-up vs single"
RATE, RATE_RATIO, MEMORY = "samples/s", "samples/s vs own 1 rank", "peak memory per rank (MiB)"


def record(**changes):
    """The record of a run that reached its target after `seconds`; of the settings only what compare looks at."""
    seconds = changes.pop("seconds", 10.0)
    settings = {"run_id": "a-run", "seed": 1, "repeat": 0, "rate_factor": 1.0, "batch_size": 32, "machine": "here"} | changes.pop(
        "settings", {}
    )
    made = {
        "workload": "cnn",
        "scaling": "weak",
        "backend": "ddp",
        "ranks": 1,
        "workload_digest": "digest",
        "status": "ok",
        "reached": True,
        "time_to_solution_seconds": seconds,
        "accuracy": 0.98,
        "samples_per_second": 1000 / seconds,
        "peak_memory_bytes": 300 * 2**20,
        "oversubscribed": False,
        "in_sync": True,
    }
    return made | changes | {"settings": settings}


def not_reached(**changes):
    return record(**{"reached": False, "time_to_solution_seconds": None, "accuracy": 0.9} | changes)


def ended(status, **changes):
    """A run that failed or timed out before it knew anything."""
    unknown = ("reached", "time_to_solution_seconds", "accuracy", "samples_per_second", "peak_memory_bytes", "oversubscribed", "in_sync")
    return record(**dict.fromkeys(unknown) | {"status": status, "workload_digest": None} | changes)


def row(found, **wanted):
    """The one row of the table with these values."""
    (one,) = (line for line in rows(found) if all(line[name] == value for name, value in wanted.items()))
    return one


def test_numbers_are_medians_over_the_repeats_and_the_memory_is_the_most():
    table = rows([record(seconds=seconds, accuracy=accuracy) for seconds, accuracy in ((30.0, 0.97), (10.0, 0.99), (20.0, 0.98))])
    assert len(table) == 1
    assert (table[0][TIME], table[0]["accuracy"], table[0][RATE]) == (20.0, 0.98, 50.0)
    assert row([record(), record(peak_memory_bytes=2**30)])[MEMORY] == 1024


def test_speed_ups_are_ratios_of_times_against_the_own_single_rank_and_the_baseline():
    found = [record(backend="single", seconds=9.0), record(seconds=12.0), record(ranks=2, seconds=6.0), record(ranks=4, seconds=4.0)]
    table = {(line["backend"], line["ranks"]): line for line in rows(found)}
    assert {key: (line[OWN], line[SINGLE]) for key, line in table.items()} == {
        ("single", 1): (1.0, 1.0),
        ("ddp", 1): (1.0, 0.75),
        ("ddp", 2): (2.0, 1.5),
        ("ddp", 4): (3.0, 2.25),
    }
    assert table["ddp", 4][RATE_RATIO] == pytest.approx(3.0)


def test_throughput_has_a_ratio_also_where_no_target_was_reached():
    found = [not_reached(samples_per_second=100.0), not_reached(ranks=2, samples_per_second=180.0)]
    assert (row(found, ranks=2)[RATE_RATIO], row(found, ranks=2)[OWN]) == (1.8, None)


@pytest.mark.parametrize(
    "others", [[], [not_reached(), not_reached(backend="single")], [ended("failed"), ended("timeout", backend="single")]]
)
def test_without_a_time_to_compare_with_there_is_no_speed_up(others):
    line = row([record(ranks=2), *others], ranks=2)
    assert (line[TIME], line[OWN], line[SINGLE]) == (10.0, None, None)


def test_oversubscribed_runs_are_called_so_and_have_no_speed_up():
    found = [record(backend="single"), record(), record(ranks=4, oversubscribed=True), record(ranks=4)]
    line = row(found, ranks="4 (oversubscribed)")
    assert line[TIME] == 10.0
    assert (line[OWN], line[SINGLE], line[RATE_RATIO]) == (None, None, None)


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ([not_reached()], "not reached"),
        ([ended("failed")], "failed"),
        ([ended("timeout")], "timeout"),
        ([ended("started")], "started"),
        ([record(), ended("failed"), record()], "failed (1 of 3)"),
        ([record(), not_reached(), not_reached()], "not reached (2 of 3)"),
        ([ended("timeout"), ended("timeout")], "timeout (2 of 2)"),
    ],
)
def test_without_a_time_from_every_repeat_the_table_says_what_happened_instead(group, said):
    line = row([record(backend="single"), *(one | {"ranks": 2} for one in group)], ranks=2)
    assert line[TIME] == said
    assert (line[OWN], line[SINGLE]) == (None, None)


def test_a_group_with_a_failed_repeat_is_no_base_of_a_speed_up():
    assert row([record(), ended("failed"), record(ranks=2)], ranks=2)[OWN] is None


def test_a_failed_repeat_leaves_the_numbers_of_the_others():
    line = row([record(accuracy=0.97), ended("failed"), record(accuracy=0.99)])
    assert (line["accuracy"], line[RATE], line[MEMORY]) == (0.98, 100.0, 300.0)


def test_a_run_that_failed_before_it_knew_anything_has_empty_cells():
    (line,) = rows([ended("failed")])
    assert cells(line) == ["cnn", "ddp", "1", "failed", *["-"] * 7]


@pytest.mark.parametrize(
    ("values", "said"), [([True, True], "yes"), ([True, False], "no"), ([False, None], "no"), ([None], None), ([True, None], "yes")]
)
def test_replicas_are_in_sync_only_where_those_of_no_repeat_differed(values, said):
    assert row([record(in_sync=value) for value in values])["in sync"] == said


def test_runs_that_trained_different_things_are_refused_with_the_setting():
    first = record(settings={"run_id": "this", "seed": 1})
    other = record(backend="single", workload_digest="other", settings={"run_id": "that", "seed": 2, "repeat": 1, "batch_size": 64})
    with pytest.raises(UserError) as raised:
        rows([first, other])
    assert "this" in str(raised.value)
    assert "that" in str(raised.value)
    assert "(batch_size)" in str(raised.value)


def test_runs_on_different_data_are_refused():
    with pytest.raises(UserError, match="their data or rate factors differ"):
        rows([record(), record(workload_digest="other")])


def test_runs_that_did_not_come_to_their_digest_are_not_refused():
    assert len(rows([record(), ended("failed", ranks=2, settings={"batch_size": 64}), record(ranks=4)])) == 3


def test_seeds_and_repeats_may_differ():
    assert len(rows([record(settings={"run_id": f"r{repeat}", "seed": repeat, "repeat": repeat}) for repeat in range(3)])) == 1


def test_records_of_two_machines_are_refused():
    with pytest.raises(UserError, match="several machines"):
        rows([record(), record(backend="single", settings={"machine": "there"})])


def test_weak_and_strong_scaling_are_kept_apart():
    found = [
        record(backend="single"),
        record(scaling="strong", workload_digest="strong", seconds=30.0),
        record(scaling="strong", workload_digest="strong", seconds=15.0, ranks=2),
    ]
    table = rows(found)
    assert [line["workload"] for line in table] == ["cnn (strong)", "cnn (strong)", "cnn"]
    assert [(line[OWN], line[SINGLE]) for line in table[:2]] == [(1.0, None), (2.0, None)]


def test_workloads_are_kept_apart():
    found = [record(backend="single"), record(workload="transformer", workload_digest="other")]
    assert [line[SINGLE] for line in rows(found)] == [1.0, None]


def test_the_baseline_comes_first_then_backends_by_name_and_size():
    order = [("horovod_torch", 1), ("ddp", 10), ("single", 1), ("ddp", 2), ("ddp", 1)]
    found = [record(backend=backend, ranks=ranks) for backend, ranks in order]
    expected = [("single", 1), ("ddp", 1), ("ddp", 2), ("ddp", 10), ("horovod_torch", 1)]
    assert [(line["backend"], line["ranks"]) for line in rows(found)] == expected


def test_cells_have_their_digits():
    line = row([record(backend="single", seconds=8.0, accuracy=0.97222), record(ranks=2, seconds=4.0)], backend="single")
    assert cells(line) == ["cnn", "single", "1", "8.00", "0.9722", "125", "1.00x", "1.00x", "1.00x", "300", "yes"]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([record(seconds=9.0), record(ranks=2, seconds=5.0)], "cnn: ddp at 2 ranks reached the target first, in 5.00 s"),
        ([record(seconds=9.0), record(ranks=2, seconds=12.0)], "cnn: ddp at 1 rank reached the target first, in 9.00 s"),
        ([not_reached(), ended("failed", ranks=2)], "cnn: no run reached the target"),
    ],
)
def test_the_answer_is_one_sentence(found, said):
    assert first_to_target(rows(found)) == [said]


def test_markdown_has_one_line_for_each_row():
    table = rows([record(backend="single"), record(), ended("failed", ranks=2)])
    header, rule, *lines = markdown(table).splitlines()
    assert header == "| " + " | ".join(COLUMNS) + " |"
    assert rule.count("---") == len(COLUMNS)
    assert len(lines) == 3
    assert {line.count("|") for line in (header, rule, *lines)} == {len(COLUMNS) + 1}
