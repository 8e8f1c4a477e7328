"""What the benches compute of the records that they make."""

from pathlib import Path

import pytest

from tests.bench import instruction_sets, own_cnn
from tests.support.made_records import made, step_breakdown, typed


def test_the_effects_of_crossed_instruction_sets_are_those_that_were_planted():
    def milliseconds(backend, onednn, mkl):
        if backend == "single_tf":
            return 8.0
        return 10.0 * (1.5 if onednn == "AVX2" else 1) * (0.8 if mkl == "fast" else 1) * (1.21 if (onednn, mkl) == ("AVX2", "fast") else 1)

    def of_run(backend, repeat, condition):
        layers = {"dense": {"forward_seconds": 0.002, "backward_seconds": 0.001}}
        breakdown = step_breakdown(compute=milliseconds(backend, *condition), num_ranks=1) | {"layers": layers}
        return made(backend, repeat=repeat, step_breakdown=breakdown)

    records_of = {
        condition: typed(of_run(backend, repeat, condition) for backend in instruction_sets.BACKENDS for repeat in range(3))
        for condition in instruction_sets.CONDITIONS
    }
    ratio_of = {(backend, effect): float(ratio) for _, backend, effect, _, ratio, *_ in instruction_sets.effects(records_of)}
    assert ratio_of["single", "oneDNN limited to AVX2"] == pytest.approx(1.5 * 1.1, abs=1e-3)
    assert ratio_of["single", "MKL's fast kernels"] == pytest.approx(0.8 * 1.1, abs=1e-3)
    assert ratio_of["single", "both, beyond the product of the two"] == pytest.approx(1.21, abs=1e-3)
    assert {ratio for (backend, _), ratio in ratio_of.items() if backend == "single_tf"} == {1.0}
    assert ratio_of["single to single_tf", "framework, with oneDNN AVX2 and MKL default"] == pytest.approx(15 / 8, abs=1e-3)
    rows = {(backend, name): cells for _, backend, name, *cells in instruction_sets.layer_rows(records_of)}
    assert rows["single", "dense"] == ["3.000"] * 4
    assert rows["single", "compute of a step"] == ["10.000", "8.000", "15.000", "14.520"]


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
