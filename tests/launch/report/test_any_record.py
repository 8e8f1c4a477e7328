"""Whatever stands at one place of a record, it is no record, or the report is written: it never ends in a traceback."""

import contextlib
import copy
import json
import random

import pytest

from common.errors import UserError
from common.record import files
from launch.report import table
from launch.report.answer import as_json
from launch.report.export import html, markdown, screen
from launch.report.report import report_of
from tests.support.made_records import made, step_breakdown, tensor_bytes, typed

VALUES = (
    None, True, 0, -1, 1, 2.5, -2.5, 1e-300, 1e29, 10**17, 10**30, "", "text", "\x1b[1m<b>|", "1", [], [1], {},
    {"a": 1}, [[1]], ["x"], [None],
)  # fmt: skip
# How many of the changed records are read, and how many of those that are records have a report. One has a page, which takes five times as
# long as all other forms together.
NUM_READ, NUM_REPORTED = 150, 8


def rich():
    """A record of which every part is there."""
    by_rank = [1, 2]
    reading_of_data = {"num_steps": 10, "wait_seconds_by_rank": [0.1, 0.2], "sample_bytes_by_rank": by_rank}
    timeline = {"trace": "trace.json.gz", "problems": ["a line"]}
    noise = {
        "product_flops_per_second": [1e9, 1e9], "copy_bytes_per_second": [1e9, 1e9],
    }  # fmt: skip
    calls = {"num_calls": 3, "size_bytes": 8.0, "seconds": 0.1}
    mpi = {"communication_seconds": 0.2, "kinds": {"control": calls, "payload": calls}, "payload_bytes_per_second": 80.0}
    return made(
        num_ranks=2, transport="gloo", step_breakdown=step_breakdown(),
        tensor_bytes_by_rank=tensor_bytes((8, 8, 16), (8, 8, 16)), reading=reading_of_data, timeline=timeline, machine_noise=noise,
        gpu_memory_by_rank=dict.fromkeys(("peak_allocated_bytes", "peak_reserved_bytes", "used_bytes"), by_rank),
        mpi_profile={"ranks": {"0": mpi}, "problems": []},
        staleness=[{"0": 3}], energy_joules=5.0, num_turns=2,
        flops_per_second_per_rank=1e9, peak_flops_per_second=2e9, share_of_peak=0.5, training_flops_per_sample=1000,
    )  # fmt: skip


def places(value, place=()):
    """The places of all values in a JSON value; of a list the first and the list itself."""
    if place:
        yield place
    for key in value if isinstance(value, dict) else range(min(1, len(value))) if isinstance(value, list) else ():
        yield from places(value[key], (*place, key))


def with_value(record, place, value):
    changed = part = copy.deepcopy(record)
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    return changed


def report(records, with_page):
    """Writes the report of records in all forms, the page where it is asked for."""
    with contextlib.suppress(UserError):
        whole = report_of(records)
        screen.show_report(whole)
        answer = whole.answer
        assert screen.lines(answer, [], 100)
        assert as_json(whole.machine, answer)
        assert markdown.text(whole)
        assert table.csv_text(whole.runs.compared)
        assert not with_page or html.text(whole)


RECORDS = {
    "rich": rich(),
    "asynchronous": made(backend="parameter_server", num_ranks=2, exact=False, staleness=[{"0": 3}]),
}


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_one_other_value_makes_it_no_record_or_one_with_a_report(record):
    choice, others = random.Random(1), typed([made(backend="single"), made(step_breakdown=step_breakdown(num_ranks=1))])
    changes = [(place, value) for place in places(record) for value in VALUES]
    readable = []
    for place, value in choice.sample(changes, min(NUM_READ, len(changes))):
        with contextlib.suppress(ValueError):
            readable.append((place, value, files.parsed(json.dumps(with_value(record, place, value)))))
    assert len(readable) > NUM_REPORTED
    for number, (place, value, changed) in enumerate(choice.sample(readable, NUM_REPORTED)):
        try:
            report([changed, *others], with_page=number == 0)
        except Exception as problem:
            raise AssertionError(f"{'/'.join(map(str, place))} = {value!r}") from problem
