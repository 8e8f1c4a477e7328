"""The picture of a trace: its window, the order of rows, and nested spans."""

import pytest

from common.errors import UserError
from common.tracing import chrome
from launch.trace import picture
from launch.trace.picture import Bar, Row


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


@pytest.mark.parametrize(
    ("selected", "bars_of_rank_0"),
    [
        ("", ([Bar("step", 0.0, 0.9, 0)], [Bar("outer", 0.1, 0.6, 0), Bar("inner", 0.2, 0.3, 1), Bar("next", 0.6, 0.7, 0)])),
        ("^(outer|long)$", ([], [Bar("outer", 0.1, 0.6, 0)])),
    ],
)
def test_rows_of_a_window_have_the_spans_that_are_wanted(selected, bars_of_rank_0):
    assert picture.rows(EVENTS, 2000, 2900, "memory", selected) == [
        Row(0, "data: steps", bars_of_rank_0[0], [0.5]),
        Row(0, "compute: PyTorch", bars_of_rank_0[1], []),
        Row(1, "compute: PyTorch", [Bar("long", 0.0, 0.9, 0)], []),
    ]


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
    assert picture.kind_of(name) == kind


def test_a_row_is_drawn_below_the_lines_of_the_row_before():
    names = ("stage 3 forward 12", "stage 0 weight gradients 1", "a name longer than its bar", "data", "four deep")
    bars = [Bar(name, 100.0 * depth, 120.0 * (depth + 1), depth) for depth, name in enumerate(names[:3])]
    rows = [Row(0, "first", [*bars, Bar(names[4], 400.0, 500.0, 3)], []), Row(1, "second", [Bar(names[3], 999.9, 1000.0, 0)], [500.0])]
    area, _, ticks, labels = (layer["data"]["values"] for layer in picture.spec(rows, "")["layer"])
    assert [bar["text"] for bar in area] == ["3.12", "0.1", "", ""]
    assert [(bar["kind"], bar["y"]) for bar in area] == [
        ("forward", 0.5), ("gradients of weights", 1.5), ("forward and other work", 2.5), ("waiting for data", 4.1),
    ]  # fmt: skip
    assert area[3]["end"] - area[3]["start"] == pytest.approx(1000 / picture.WIDTH * picture.THINNEST_BAR)
    assert ticks == [{"start": 500.0, "y": pytest.approx(4.1)}]
    assert [label["text"] for label in labels] == ["rank 0 first", "rank 1 second"]


@pytest.mark.parametrize(("name", "magic"), [("p.png", b"\x89PNG"), ("p.svg", b"<svg")])
def test_a_picture_is_drawn(tmp_path, name, magic):
    chrome.write(tmp_path / "t.json.gz", EVENTS)
    path = tmp_path / name
    assert picture.run(picture.Arguments(tmp_path / "t.json.gz", path, first_step=0, num_steps=2)) == 0
    assert path.read_bytes().startswith(magic)
    if name.endswith("svg"):
        assert "rank 1 compute: PyTorch" in path.read_text()
        assert picture.COLOURS[1][2] in path.read_text()


@pytest.mark.parametrize(
    ("name", "arguments", "events", "message"),
    [
        ("p.gif", {}, EVENTS, r"p\.gif should end with \.png or \.svg"),
        ("none/p.png", {}, EVENTS, r"none/p\.png cannot be written \(No such file or directory\)"),
        ("p.png", {"leave_out": "("}, EVENTS, r"--leave-out '\(' is not a regular expression"),
        ("p.png", {"only": "none", "leave_out": ""}, [span("step", 0, 9, step=0)], "nothing in this window"),
        ("p.png", {}, [span("step", 0, 9, step=0), {"ph": "X", "name": "step", "ts": 1, "dur": 2}], "not a merged trace: .*'pid'"),
        ("p.png", {}, [span("step", "0", 9, step=0)], "not a merged trace: an event has a wrong or missing entry"),
        ("p.png", {}, [1, 2], "not a trace: an event is not an object but int"),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_an_error(tmp_path, name, arguments, events, message):
    chrome.write(tmp_path / "t.json.gz", events)
    with pytest.raises(UserError, match=message):
        picture.run(picture.Arguments(tmp_path / "t.json.gz", tmp_path / name, first_step=0, **arguments))
    assert [path.name for path in tmp_path.iterdir()] == ["t.json.gz"]
