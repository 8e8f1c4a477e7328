"""The order of the questions, and the notes."""

import pytest

from tests.support.answers import answered
from tests.support.made_records import made, repeats


def test_the_questions_are_in_order():
    assert [section.key for section in answered([made()]).sections] == ["first", "scaling", "cost", "same", "quiet", "failed"]


@pytest.mark.parametrize(
    ("num_runs", "note"),
    [
        (1, "have no interval"),
        (3, "at most 75 % of the time"),
        (4, "at most 88 % of the time"),
        (5, "at most 94 % of the time"),
        (6, None),
    ],
)
def test_the_notes_give_the_coverage_of_few_repeats(num_runs, note):
    notes = answered(repeats([10.0] * num_runs)).notes
    assert note in notes[0] if note else notes == []


def test_entries_with_one_run_and_with_few_runs_have_two_notes():
    single, few = answered([*repeats([10.0, 10.1, 10.2]), made(backend="single"), *repeats([9.0] * 4, backend="horovod_tf")]).notes
    assert "have no interval" in single
    assert "A bootstrap interval, as of a speed-up, from 3 runs" in few


def test_the_notes_name_differences_of_the_environment():
    second = made(num_ranks=2)
    second["environment"] = second["environment"] | {"packages": {"torch": "2.14.0"}, "git_commit": "1" * 40}
    notes = answered([made(), second]).notes
    assert "cnn, weak scaling: records differ in torch: 2.13.0, 2.14.0." in notes
    assert "cnn, weak scaling: records differ in commit: 00000000, 11111111." in notes


def test_the_notes_name_other_launchers_libraries_and_cores():
    first, second, third = (made(num_ranks=ranks) for ranks in (1, 2, 3))
    second["launcher"] = "torchrun"
    for record, mpi, cores in ((second, "MPICH  4.3", 4), (third, "Open MPI 5", 64)):
        record["environment"] = record["environment"] | {"mpi": mpi, "num_cores": cores}
    notes = answered([first, second, third]).notes
    assert [note for note in notes if "differ" in note] == [
        "cnn, weak scaling: records differ in launcher: mpich, torchrun.",
        "cnn, weak scaling: records differ in MPI: MPICH 4.3, Open MPI 5.",
        "cnn, weak scaling: records differ in cores: 4, 64.",
    ]


@pytest.mark.parametrize(("turns", "noted"), [((None, 3), False), ((0, 0), False), ((4, 3), False), ((0, 3), True)])
def test_the_notes_name_runs_that_were_not_side_by_side(turns, noted):
    records = [made(num_turns=turns[0]), made(backend="single", num_turns=turns[1])]
    note = "cnn, weak scaling: records differ in turns: one after the other, side by side."
    assert (note in answered(records).notes) == noted
