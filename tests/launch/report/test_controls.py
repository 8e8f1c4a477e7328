"""How a report judges the controls of its matrix, and that they count nowhere else."""

import pytest

from common.errors import UserError
from tests.support.answers import answered, section
from tests.support.made_records import ended, made

SECONDS = [10.0, 10.1, 9.9, 10.2, 10.0, 9.8]
# A copy, and one that takes 5 % longer, with noise of their own.
COPY = [10.02, 10.07, 9.93, 10.19, 9.97, 9.83]
DELAYED = [10.5, 10.65, 10.4, 10.75, 10.45, 10.3]
# 4 % slower, with more noise than that.
NOISY = [9.0, 12.0, 10.0, 11.5, 9.5, 10.9]
AT = "cnn, weak scaling, 2 ranks"


def runs(seconds, backend="ddp", control=None, **changes):
    """The records of repeats whose epochs took so many seconds, evaluation included."""
    records = [
        made(
            backend, 2, repeat, settings={"control": control}, train_seconds=[0.8 * time] * 2, eval_seconds=[0.2 * time] * 2,
            **changes,
        )
        for repeat, time in enumerate(seconds)
    ]  # fmt: skip
    for record in records:
        record["settings"]["run_id"] += f"-{control}" if control else ""
    return records


def with_controls(copy=COPY, delayed=DELAYED):
    return [*BACKENDS, *runs(copy, control="copy"), *runs(delayed, control="delayed")]


BACKENDS = [*runs(SECONDS), *runs([11.0, 11.2, 11.1, 10.9, 11.3, 11.1], "horovod_tf")]
SLOWER = [1.03 * seconds for seconds in COPY]


def control_lines(records):
    return [
        line
        for section in answered(records).sections
        if section.key == "reliability"
        for line in section.sentences
        if line.startswith("Controls")
    ]


@pytest.mark.parametrize(
    ("copy", "delayed", "line", "is_warning"),
    [
        (COPY, DELAYED, "copy: 1.00 (0.997 to 1.003); 5 % slower: found.", False),
        (
            COPY, NOISY, "copy: 1.00 (0.997 to 1.003); 5 % slower: not found, 1.04 (0.93 to 1.17), "
            "so these verdicts may miss differences of 5 %.", True,
        ),
        (SLOWER, DELAYED, "copy: 1.03 (1.03 to 1.03), so do not rely on these verdicts; 5 % slower: found.", True),
        (COPY, [], "copy: 1.00 (0.997 to 1.003); 5 % slower: not measured.", False),
        (COPY[:3], DELAYED, "copy: 1.00 (no verdict, 95 % interval 0.99 to 1.01, 3 pairs); 5 % slower: found.", False),
        # A delayed one that seems faster is not found.
        (
            COPY, [0.95 * seconds for seconds in COPY], "copy: 1.00 (0.997 to 1.003); 5 % slower: not found, 0.95 (0.95 to 0.95), "
            "so these verdicts may miss differences of 5 %.", True,
        ),
    ],
)  # fmt: skip
def test_controls_have_a_line_which_comes_first_where_it_warns(copy, delayed, line, is_warning):
    sentence = f"Controls of {AT}, ddp: {line}"
    assert control_lines(with_controls(copy, delayed)) == [sentence]
    assert answered(with_controls(copy, delayed)).answer.reliability[0 if is_warning else -1] == sentence


def test_controls_are_nowhere_else_and_change_no_number():
    controlled, plain = answered(with_controls()), answered(BACKENDS)
    assert controlled.runs.compared == plain.runs.compared
    assert controlled.answer.quotation == plain.answer.quotation
    for section_controlled, section_plain in zip(controlled.sections, plain.sections, strict=True):
        assert [table.texts for table in section_controlled.tables] == [table.texts for table in section_plain.tables]
    assert control_lines(BACKENDS) == []


def test_a_control_that_failed_is_named_and_its_backend_may_have_missed_the_target():
    failed = ended("failed", backend="ddp", num_ranks=2, settings={"control": "copy"})
    assert section([*BACKENDS, failed], "failed").sentences == ["Of 13 files: 1 failed."]
    assert control_lines([*BACKENDS, failed]) == [f"Controls of {AT}, ddp: copy: not measured; 5 % slower: not measured."]


def test_controls_of_several_matrices_are_judged_together_also_of_a_backend_that_missed_the_target():
    def of_matrix(stamp, missed):
        changes = {"reached": False, "time_to_solution_seconds": None, "accuracy": 0.9} if missed else {}
        return [
            *runs(SECONDS, stamp=stamp, **changes), *runs(COPY, control="copy", stamp=stamp),
            *runs(DELAYED, control="delayed", stamp=stamp),
            *runs(DELAYED, "horovod_tf", stamp=stamp), *runs(NOISY, "horovod_torch", stamp=stamp),
        ]  # fmt: skip

    for missed in (False, True):
        records = [record for stamp in ("20260101-000000", "20260102-000000") for record in of_matrix(stamp, missed)]
        (line,) = control_lines(records)
        # Narrower than that of 6 pairs, which is 0.997 to 1.003.
        assert line.startswith(f"Controls of {AT}, ddp: copy: 1.00 (0.998 to 1.00")
        assert line.endswith("); 5 % slower: found.")


def test_controls_alone_are_refused():
    with pytest.raises(UserError, match="all of these runs are controls"):
        answered(runs(COPY, control="copy"))
