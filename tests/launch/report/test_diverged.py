"""A run that diverged is listed as such, and its times and speeds are nowhere beside those of others."""

import io

import pytest
from rich.console import Console

from launch.report import table
from launch.report.export import drawing, html, markdown, screen
from launch.report.questions import failed
from tests.support.answers import answered
from tests.support.made_records import made, repeats, step_breakdown, tensor_bytes, typed, valid

LOSS = "the loss of step 3 of epoch 1 is nan, the first that is not finite; lower --learning-rate"
# Four times nobody else has, and in no other form.
SECONDS, STEP, RATE, JOULES = 7177.0, 1435.4, 71771.0, 71773.0


def diverged(**changes):
    """The record of a run that measured everything, and diverged in its last epoch."""
    measured = {"step_breakdown": step_breakdown(compute=71779.0), "tensor_bytes_by_rank": tensor_bytes((3, 2, 1), (3, 3, 1))}
    results = {
        "reached": False,
        "time_to_solution_seconds": None,
        "samples_per_second": RATE,
        "tokens_per_second": RATE,
        "share_of_peak": 0.71771,
    }
    energy = {"energy_joules": JOULES, "losses": [3.0, 2.0, None, None]}
    return valid(made(seconds=SECONDS, num_ranks=2, **changes) | measured | results | energy | {"status": "diverged", "error": LOSS})


OTHERS = [*repeats([9.0] * 6), *repeats([6.0] * 6, num_ranks=2, backend="horovod_torch"), *repeats([5.0] * 6, num_ranks=2, backend="ddp")]


@pytest.mark.parametrize("others", [OTHERS, []])
def test_no_output_has_its_times(others, monkeypatch):
    # What is drawn is also in words.
    monkeypatch.setattr(drawing, "svgs", lambda specs, **_: [""] * len(specs))
    report, console = answered([*others, diverged(backend="ddp", repeat=6)]), Console(file=io.StringIO(), width=400)
    screen.show_report(report, console)
    for text in (table.csv_text(report.runs.compared), markdown.text(report), html.text(report), console.file.getvalue()):
        assert "diverged" in text
        assert LOSS.partition(";")[0] in text
        assert [number for number in ("7177", "1435", "71,77", "7,177", "71779", "71.77") if number in text] == []


def test_it_counts_as_a_miss_and_the_rest_of_the_report_is_as_without_it():
    with_it, without = (answered([*OTHERS, *more]) for more in ([diverged(backend="fsdp")], []))
    assert with_it.answer.quotation == without.answer.quotation
    for section, plain in zip(with_it.sections, without.sections, strict=True):
        if section.key in ("cost", "same", "step"):
            assert section == plain
    assert failed.failure(*typed([diverged()])) == ("diverged", LOSS)
