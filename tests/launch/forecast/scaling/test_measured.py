"""What a forecast reads from a record: exchanges, their whole buffers and starts, and plain all-reduces."""

import pytest

from launch.forecast.scaling import measured
from tests.support.made_records import made, step_breakdown, typed


def run(operations, num_ranks=2, library=None, transport="mpi", **changes):
    breakdown = step_breakdown(compute=10.0, num_ranks=num_ranks) | {"library": library or {}} | changes
    by_collective = {name: {"num_calls": num, "num_bytes": size} for name, (num, size) in operations.items()}
    return typed([made(num_ranks=num_ranks, transport=transport, step_breakdown=breakdown | {"operations": by_collective})])[0]


AVERAGED = {"all_reduce": (2.0, 600.0)}
SHARDED = {"reduce_scatter": (1.0, 800.0), "all_gather": (1.0, 200.0)}
STARTS = {"all_reduce": [0.005], "all_gather": [0.001]}


# An exchange: the share of the computation after which it may start, the bytes of the whole buffer, the collective.
@pytest.mark.parametrize(
    ("record", "exchanges", "are_measured"),
    [
        (run({}), [], False),
        (run(AVERAGED), [(2 / 3, 300, "all_reduce"), (1, 300, "all_reduce")], False),
        # DDP says how large its buckets are.
        (run(AVERAGED, library={"rebuilt_bucket_sizes": "400, 200"}), [(2 / 3, 400, "all_reduce"), (1, 200, "all_reduce")], False),
        # A rank contributes its share to a gather of parameters, which waits for the update. The whole buffer is as large at any size.
        (run(SHARDED, num_ranks=4), [(1, 800, "all_gather"), (1, 800, "reduce_scatter")], False),
        (
            run(AVERAGED, exchange_start_seconds={"all_reduce": [0.004, 0.012]}),
            [(0.4, 300, "all_reduce"), (1, 300, "all_reduce")],
            True,
        ),
        (run(AVERAGED, exchange_start_seconds={"all_reduce": [0.004]}), [(0.4, 600, "all_reduce")], True),
        # Gloo makes a reduce-scatter of an all-reduce, whether or not the profile has starts, and gathers in its own way.
        (run(SHARDED, num_ranks=4, transport="gloo"), [(1, 800, "all_reduce"), (1, 800, "gloo_all_gather")], False),
        # Parameters are waited for, unless it was measured when they are gathered.
        (
            run(SHARDED, num_ranks=4, transport="gloo", exchange_start_seconds=STARTS),
            [(0.1, 800, "gloo_all_gather"), (0.5, 800, "all_reduce")],
            True,
        ),
        # Flags are no exchange.
        (run({"all_reduce": (1.0, 8.0)}), [], False),
    ],
)
def test_the_exchanges_of_a_step(record, exchanges, are_measured):
    expected = [(pytest.approx(ready_share), size, collective) for ready_share, size, collective in exchanges]
    assert measured.exchanges_of(record) == (expected, are_measured)


def test_without_plain_all_reduces_by_size_there_is_one_as_bus_bandwidth():
    gradients = run({"all_reduce": (2.0, 600.0)}, num_ranks=4, all_reduce_seconds_by_size=None, plain_bus_bytes_per_second=100.0)
    assert measured.plain_of(gradients) == [(600.0, 1.5 * 600 / 100)]
    assert measured.plain_of(run({}, plain_bus_bytes_per_second=None, all_reduce_seconds_by_size=None)) == []
    assert measured.plain_of(run({}))[0] == (1024, 1e-5)


def test_the_step_of_training_is_that_of_its_median_epoch():
    changes = {"train_seconds": [1.0, 2.0, 9.0], "step_seconds": [0.5] * 6, "losses": [1.0] * 6, "learning_rates": [0.1] * 6}
    assert measured.of(typed([made(**changes, step_breakdown=step_breakdown(num_ranks=1))]), {}).timed_step_seconds == pytest.approx(1.0)


def test_a_run_whose_record_has_no_number_of_samples_is_no_size():
    assert (
        measured.of(
            typed(
                [
                    made(
                        samples_per_epoch=None,
                        resumed_after_epochs=2,
                        time_to_solution_seconds=None,
                        step_breakdown=step_breakdown(num_ranks=1),
                    )
                ]
            ),
            {},
        )
        is None
    )
