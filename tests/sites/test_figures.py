"""What an acceptance test asserts of records, and the references that it takes from earlier ones."""

import json

import pytest

from common.errors import UserError
from tests.sites import figures
from tests.support import made_records
from tests.support.running import BIN, completed

FASTER, SLOWER = "ddp", "horovod_torch"


def matrix(**seconds):
    """The records of backends at two ranks, with these times to solution."""
    return made_records.typed(made_records.made(backend, num_ranks=2, seconds=value) for backend, value in seconds.items())


def test_a_run_is_wrong_that_failed_or_whose_replicas_differ_or_were_not_compared_and_so_is_a_missing_backend():
    made = made_records.made
    failed = made(SLOWER, status="failed", error="rank 1 was killed")
    runs = made_records.typed([*(made(FASTER, repeat=repeat) for repeat in range(3)), failed, made(SLOWER, repeat=1, status="started")])
    # No run leaves such a record, and none is read.
    runs[1].in_sync, runs[2].in_sync = False, None
    assert figures.problems(runs, [FASTER, SLOWER, "fsdp"]) == [
        f"{FASTER}, repeat 1: ok, in_sync False",
        f"{FASTER}, repeat 2: ok, in_sync None",
        f"{SLOWER}, repeat 0: rank 1 was killed, in_sync True",
        f"{SLOWER}, repeat 1: started, in_sync True",
        "fsdp has no record",
    ]
    assert figures.problems(matrix(ddp=10), [FASTER]) == []


def test_the_references_are_the_seconds_per_epoch_of_earlier_records():
    compared = figures.figures(matrix(ddp=12, horovod_torch=20), matrix(ddp=10, horovod_torch=20))
    # An epoch has half a second of evaluation, and its training ends a second before half of the time.
    assert compared["ddp_seconds_per_epoch"] == {"value": pytest.approx(5.5), "unit": "s", "reference": pytest.approx(4.5)}
    assert compared["ddp_time_to_solution"] == {"value": 12, "unit": "s", "reference": None}
    assert compared["ddp_samples_per_second"]["value"] == pytest.approx(1000 / 12)
    assert {name for name, figure in compared.items() if figure["reference"]} == {
        "ddp_seconds_per_epoch",
        "horovod_torch_seconds_per_epoch",
    }
    assert not any(figure["reference"] for figure in figures.figures(matrix(ddp=12)).values())


def test_relative_to_a_backend_the_references_are_ratios_which_the_speed_of_the_machine_does_not_change():
    compared = figures.figures(matrix(ddp=20, horovod_torch=30), matrix(ddp=10, horovod_torch=15), relative_to=FASTER)
    assert {name: (figure["value"], figure["reference"]) for name, figure in compared.items() if figure["reference"]} == {
        "horovod_torch_ratio_to_ddp": (pytest.approx(14.5 / 9.5), pytest.approx(7 / 4.5))
    }


def test_a_burst_of_other_load_in_a_turn_does_not_change_the_ratio_of_runs_side_by_side():
    turns = {FASTER: [1.0, 2.0, 1.0, 1.0], SLOWER: [1.5, 3.0, 90.0, 1.5]}
    side_by_side = made_records.typed(
        made_records.made(backend, num_ranks=2, step_seconds=steps, steps_per_turn=1, eval_seconds=[0.0, 0.0])
        for backend, steps in turns.items()
    )
    assert figures.figures(side_by_side, relative_to=FASTER)["horovod_torch_ratio_to_ddp"]["value"] == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("measured", "earlier", "relative_to", "message"),
    [
        (matrix(ddp=10, horovod_torch=20), matrix(ddp=10), None, "the reference of .* have no horovod_torch_seconds_per_epoch"),
        (matrix(ddp=10), matrix(ddp=10, horovod_torch=20), None, "the results of .* have no horovod_torch_seconds_per_epoch"),
        (matrix(ddp=10), made_records.typed([made_records.made(num_ranks=4)]), None, "the reference of .* have no ddp_seconds_per_epoch"),
        (matrix(ddp=10), made_records.typed([made_records.made(workload="resnet50")]), None, "the reference of .* have no"),
        (matrix(ddp=10), made_records.typed([made_records.made(num_ranks=2, settings={"epochs": 7})]), None, "different settings"),
        (matrix(ddp=10), [], FASTER, "nothing would be compared"),
        (matrix(ddp=10, horovod_torch=20), [], "fsdp", "nothing would be compared"),
        ([*matrix(ddp=10), *made_records.typed([made_records.made(num_ranks=4)])], [], None, "2 workloads and sizes"),
    ],
)
def test_what_would_not_be_compared_is_a_mistake(measured, earlier, relative_to, message):
    with pytest.raises(UserError, match=message):
        figures.figures(measured, earlier, relative_to)


def test_the_program_prints_what_is_wrong_or_the_figures(tmp_path):
    program = (BIN / "python", "-m", "tests.sites.figures", tmp_path, "--backends", "ddp")
    (tmp_path / "ddp.json").write_text(json.dumps(made_records.made(num_ranks=2)))
    done = completed(*program, "--reference", tmp_path)
    assert json.loads(done.stdout)["problems"] == [], done.stderr
    assert json.loads(done.stdout)["figures"]["ddp_seconds_per_epoch"] == {"value": 4.5, "unit": "s", "reference": 4.5}
    (tmp_path / "ddp.json").write_text(json.dumps(made_records.made(num_ranks=2, status="failed", error="it broke")))
    assert json.loads(completed(*program).stdout) == {"problems": ["ddp, repeat 0: it broke, in_sync True"], "figures": {}}
    done = completed(*program, "--relative-to", "ddp", "--reference", tmp_path / "nowhere")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
