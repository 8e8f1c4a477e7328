"""The lesson of reading from disk: what it runs, and what it concludes."""

from pathlib import Path

import pytest

from common import workloads
from launch.lesson.data import DATA_FORMATS, Data, Waited, bars, conclusion, data_jobs, picture, waited_of
from tests.launch.report.questions.test_reading import stored
from tests.support.made_records import made, typed


def jobs(**settings):
    lesson = Data(**settings)
    folders = {name: Path("data", name) for name in DATA_FORMATS}
    return data_jobs(lesson, folders, Path("there"), "here", "stamp")


def test_every_format_is_run_with_each_number_of_workers_and_ranks():
    chosen = jobs(workers=(0, 2), formats="memory,npy,tfrecord")
    assert [(job.settings.data_format, job.settings.num_workers, job.num_ranks) for job in chosen] == [
        ("memory", 0, 1), ("memory", 0, 2), ("npy", 0, 1), ("npy", 0, 2), ("npy", 2, 1), ("npy", 2, 2),
        *(("tfrecord", 0, num_ranks) for num_ranks in (1, 2)),
    ]  # fmt: skip
    assert len({job.settings.run_id for job in jobs()}) == len(jobs())
    for job in jobs(cold=True, data_budget=512.0):
        settings = workloads.resolve(job.settings, job.num_ranks)
        assert (settings.drop_caches == "once") == (settings.data_budget == 512) == (settings.data_format != "memory")


def test_data_that_is_made_larger_is_not_in_memory():
    assert {job.settings.data_format for job in jobs(formats="memory,npy", copies=2)} == {"npy"}


def test_the_wait_of_a_step_is_the_mean_over_the_ranks():
    assert waited_of(*typed([stored("hdf5", wait=0.4)])) == Waited("hdf5", 0, 2, pytest.approx(0.1), pytest.approx(2.0))
    assert waited_of(*typed([made()])) == Waited("memory", 0, 1, 0.0, pytest.approx(2.0))


WAITS = [
    Waited("memory", 0, 2, 0.0, 0.050), Waited("hdf5", 0, 2, 0.020, 0.080), Waited("hdf5", 1, 2, 0.001, 0.075),
    Waited("npy", 0, 2, 0.002, 0.052), Waited("npy", 1, 2, 0.0005, 0.053),
]  # fmt: skip


def test_the_pictures_have_the_waiting_and_the_rest_of_each_step():
    lines = bars(WAITS)
    assert [line.count("#") for line in lines] == [0, 60, 3, 9, 2]
    assert lines[1].endswith(" 25.0 %")
    assert lines[1].startswith("hdf5, 0 workers, 2 ranks |")
    drawn = picture(WAITS)
    assert drawn.startswith("<svg")
    for waited in WAITS:
        assert f">{waited.name}<" in drawn
    for part, seconds in (("waits for samples", 0.020), ("computes and exchanges", 0.060)):
        assert f"step (ms): {1000 * seconds:g}; run: hdf5, 0 workers, 2 ranks; part: {part}" in drawn


def test_the_conclusion_is_drawn_from_the_numbers():
    assert conclusion(WAITS) == [
        "Training waits longest for hdf5, 0 workers, 2 ranks: 20.00 ms of a step of 80.0 ms, and least for npy, 1 worker, 2 ranks: "
        "0.50 ms of a step of 53.0 ms.",
        "Workers make the wait shorter in 2 of 2 cases, and the step in 1: what they do takes time of the rank's cores.",
    ]
    assert conclusion(WAITS[:1]) == ["nothing to compare: no run has read from disk"]
