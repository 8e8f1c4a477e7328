"""What the benches compute of the records that they make."""

from pathlib import Path

from tests.bench import own_cnn
from tests.support.made_records import made, typed


def test_a_file_is_compared_with_the_built_in_model_by_repeats():
    def of_side(model, seconds):
        return [
            made(repeat=repeat, train_seconds=[of_repeat, of_repeat], eval_seconds=[0.0, 0.0], settings={"model": model}, **single)
            for repeat, of_repeat in enumerate(seconds)
        ]

    single = {"backend": "single", "num_ranks": 1}
    run_records = typed(of_side(None, [1.0, 2.0, 4.0]) + of_side(str(own_cnn.FILE), [1.02, 2.04, 4.08]))
    backend, num_repeats, built_in, file, ratio, interval, *_ = own_cnn.cells("single", run_records)
    assert (backend, num_repeats, built_in, file, ratio) == ("single", 3, "2.0000", "2.0400", "1.020")
    assert interval == "1.020 to 1.020"


def test_both_models_of_a_repeat_run_side_by_side_and_differ_in_the_file_alone():
    (first, second) = own_cnn.jobs_of(own_cnn.Arguments(repeats=2), Path("results"))
    assert [(job.backend, job.num_ranks, job.settings.model is None) for job in first] == [
        ("single", 1, True), ("ddp", 2, True), ("single", 1, False), ("ddp", 2, False),
    ]  # fmt: skip
    assert {job.settings.repeat for job in second} == {1}
    assert len({job.settings.run_id for job in first + second}) == 8
