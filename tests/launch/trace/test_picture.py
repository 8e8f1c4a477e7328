"""The picture of a trace: its window, the order of rows, and nested spans."""

import re

import pytest

from common.errors import UserError
from common.model import pipelining
from common.tracing import chrome
from launch.trace import picture
from launch.trace.picture import Bar, Row
from tests.support.running import ROOT


def span(name, ts, dur, pid=0, tid=1, **args):
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "pid": pid, "tid": tid, "args": args}


def named(pid, tid, name):
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "ts": 0, "args": {"name": name}}


EVENTS = [
    named(0, 1, "data: steps"), named(0, 1001, "compute: PyTorch"), named(1, 1001, "compute: PyTorch"), named(0, 1002, "compute: memory"),
    span("step", 1000, 900, step=0), span("step", 2000, 900, step=1), span("step", 3000, 900, pid=1, step=2),
    span("inner", 2200, 100, tid=1001), span("outer", 2100, 500, tid=1001), span("next", 2600, 100, tid=1001),
    span("long", 0, 9000, pid=1, tid=1001), span("before", 1990, 10, tid=1001), span("after", 2900, 10, tid=1001),
    span("counted", 2100, 10, tid=1002), {"ph": "i", "name": "m", "s": "t", "ts": 2500, "pid": 0, "tid": 1},
]  # fmt: skip


def test_rows_of_a_window():
    assert picture.rows(EVENTS, 2000, 2900, "memory") == [
        Row(0, "data: steps", [Bar("step", 0.0, 0.9, 0)], [0.5]),
        Row(0, "compute: PyTorch", [Bar("outer", 0.1, 0.6, 0), Bar("inner", 0.2, 0.3, 1), Bar("next", 0.6, 0.7, 0)], []),
        Row(1, "compute: PyTorch", [Bar("long", 0.0, 0.9, 0)], []),
    ]


def test_rows_of_the_spans_that_are_wanted():
    assert picture.rows(EVENTS, 2000, 2900, "memory", "^(outer|long)$") == [
        Row(0, "data: steps", [], [0.5]),
        Row(0, "compute: PyTorch", [Bar("outer", 0.1, 0.6, 0)], []),
        Row(1, "compute: PyTorch", [Bar("long", 0.0, 0.9, 0)], []),
    ]


@pytest.mark.parametrize(
    ("name", "text"), [("stage 3 forward 12", "3.12"), ("stage 0 weight gradients 1", "0.1"), ("Optimizer.step#SGD.step", None)]
)
def test_the_text_of_what_a_stage_computes_is_its_number_and_that_of_the_micro_batch(name, text):
    assert picture.text_of(name) == (text or name)


@pytest.mark.parametrize(("first", "num", "window"), [(0, 1, (1000, 1900)), (1, 1, (2000, 2900)), (0, 2, (1000, 2900))])
def test_window_of_steps(first, num, window):
    assert picture.step_window(EVENTS, first, num) == window


@pytest.mark.parametrize(("first", "num"), [(2, 1), (1, 2), (0, 0), (-1, 1)])
def test_missing_steps_are_an_error(first, num):
    with pytest.raises(UserError, match="steps 0 to 1 of rank 0"):
        picture.step_window(EVENTS, first, num)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("data", "waiting for data"), ("step", "step"), ("ProfilerStep#4", "step"), ("NEGOTIATE_ALLREDUCE", "negotiation and waiting"),
        ("MEMCPY_IN_FUSION_BUFFER", "copies for collectives"), ("MPI_ALLREDUCE", "collectives"), ("ALLREDUCE", "collectives"),
        ("gloo:all_reduce", "collectives"), ("ncclDevKernel_AllReduce", "collectives"), ("MPI_Allreduce", "collectives"),
        ("MPI_Barrier", "collectives"), ("Optimizer.step#SGD.step", "optimizer"), ("ConvolutionBackward0", "backward"),
        ("stage 1 forward 0", "forward"), ("stage 1 backward 0", "backward"), ("stage 1 weight gradients 0", "gradients of weights"),
        ("_MklNativeConv2DBackpropInput", "backward"), ("aten::conv2d", "forward and other work"),
    ],
)  # fmt: skip
def test_kind_of_a_span(name, kind):
    assert picture.kind_of(name)[0] == kind


@pytest.mark.parametrize(("name", "magic"), [("p.png", b"\x89PNG"), ("p.svg", b"<?xml")])
def test_a_picture_is_drawn(tmp_path, name, magic):
    chrome.write(tmp_path / "t.json.gz", EVENTS, {})
    path = tmp_path / name
    assert picture.run(picture.Arguments(tmp_path / "t.json.gz", path, first_step=0, num_steps=2)) == 0
    assert path.read_bytes().startswith(magic)
    if name.endswith("svg"):
        assert "rank 1  compute: PyTorch" in path.read_text()


@pytest.mark.parametrize("name", ["p.gif", "p"])
def test_another_picture_format_is_an_error(tmp_path, name):
    with pytest.raises(UserError, match=r"\.png or \.svg"):
        picture.run(picture.Arguments(tmp_path / "t.json.gz", tmp_path / name))


@pytest.mark.parametrize(
    ("name", "leave_out", "events", "message"),
    [
        ("none/p.png", "", EVENTS, r"none/p\.png cannot be written \(No such file or directory\)"),
        ("p.png", "(", EVENTS, r"--leave-out '\(' is not a regular expression"),
        ("p.png", "", [span("step", 0, 9, step=0), {"ph": "X", "name": "step", "ts": 1, "dur": 2}], "not a merged trace: .*'pid'"),
        ("p.png", "", [span("step", "0", 9, step=0)], "not a merged trace: an event has a wrong or missing entry"),
        ("p.png", "", [1, 2], "not a trace: an event is not an object but int"),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_an_error(tmp_path, name, leave_out, events, message):
    chrome.write(tmp_path / "t.json.gz", events, {})
    with pytest.raises(UserError, match=message):
        picture.run(picture.Arguments(tmp_path / "t.json.gz", tmp_path / name, first_step=0, leave_out=leave_out))


def test_an_empty_window_is_an_error(tmp_path):
    with pytest.raises(UserError, match="nothing in this window"):
        picture.draw([], tmp_path / "p.png", "")


def test_the_pictures_of_the_page_exist_and_are_small():
    page = ROOT / "launch" / "trace" / "TIMELINES.md"
    shown = re.findall(r"!\[.*\]\((.*)\)", page.read_text())
    schedules = [f"pipeline_{schedule}" for schedule in pipelining.SCHEDULES if schedule != "naive"]
    assert sorted(shown) == sorted(
        f"../../results/reference/timelines/{name}.png" for name in ("horovod_torch", "ddp", "deepspeed_zero", *schedules)
    )
    assert all(0 < (page.parent / name).stat().st_size < 150_000 for name in shown)
