"""The verdicts on made observations of two ranks, of which one thing is wrong."""

import copy

import pytest

from launch.auditing import checks

AVERAGE, ALONE = [2.0, 3.0, 4.0, 5.0], ([1.0, 2.0, 3.0, 4.0], [3.0, 4.0, 5.0, 6.0])
NUM_STEPS = 10
AT_START, AT_END = [1.0, 1.0, 1.0, 1.0], [NUM_STEPS + 1.0, 1.0, 1.0, 1.0]


def rank(number):
    """The events of a rank that trains a parameter `w` for two epochs, as it should."""
    steps = [
        {
            "event": "step", "number": step, "optimizer": "SGD", "values": {"w": [float(step), 1.0, 1.0, 1.0]},
            "gradients": {"w": [AVERAGE, ALONE[number], None, [None], True]}, "rates": [0.1], "num_batches": 1,
            "scale": 1.0, "losses": [[1.0, 4.0, 1.0]],
        }
        for step in range(1, NUM_STEPS + 1)
    ]  # fmt: skip
    passes = [
        {
            "dataset": 0, "size": 40, "indices": [(7 * place + epoch) % 20 * 2 + number for place in range(20)],
            "is_cut": False, "trains": True, "begins": not epoch, "num_steps": 5 * (epoch + 1),
        }
        for epoch in range(2)
    ]  # fmt: skip
    evaluation = {
        "event": "evaluation", "steps": NUM_STEPS, "kind": "Net", "is_trained": True, "model": 0, "layers": [False],
        "samples": {"0": [*range(900, 920)]}, "parameters": [["w", AT_END, AT_END]],
    }  # fmt: skip
    end = {
        "event": "end", "num_steps": NUM_STEPS, "num_backward": NUM_STEPS, "samples": [[float(i) for p in passes for i in p["indices"]]],
        "passes": passes, "random": [number], "with_gradient": ["w"], "without_gradient": [],
        "inactive": {}, "num_skipped_last": 0,
        "schedulers": [{"kind": "StepLR", "num": 2, "num_before": 5, "num_steps": 10}],
    }  # fmt: skip
    model = {"event": "model", "sizes": {"w": [9, 9]}, "buffers": {"b": AVERAGE}}
    return [event | {"rank": number, "world_size": 2} for event in (model, *steps, evaluation, end)]


def verdicts(change=lambda events, number: None, numbers=(0, 1)):
    """{check: verdict} of the ranks, whose events are changed in place; or of those that are given."""
    ranks = [rank(number) for number in numbers]
    for number, events in zip(numbers, ranks, strict=True):
        change(events, number)
    return {verdict.check: verdict for verdict in checks.judge(copy.deepcopy(ranks))}


def wrong(change):
    return {name for name, verdict in verdicts(change).items() if verdict.verdict == checks.WRONG}


def of(kind, events):
    """The events of a kind, or the passes of loaders."""
    return of("end", events)[0]["passes"] if kind == "pass" else [event for event in events if event["event"] == kind]


def set_all(kind, number=None, **fields):
    """A change of fields of all events of a kind, on one rank or on both."""

    def change(events, of_rank):
        for event in of(kind, events):
            event.update(copy.deepcopy(fields) if number in (None, of_rank) else {})

    return change


def gradient(place, value_of):
    """A change of one entry of each gradient, by the number of the rank."""

    def change(events, number):
        for step in of("step", events):
            step["gradients"]["w"][place] = value_of(number)

    return change


def shifted(events, number):
    for step in of("step", events)[5:]:
        step["values"]["w"][1] += number


def same_samples(events, number):
    order = [7 * place % 20 for place in range(20)]
    set_all("pass", indices=order)(events, number)
    of("pass", events)[1]["indices"] = order[::-1]
    set_all("end", samples=[[float(index) for index in order]])(events, number)


def replaced_order(events, _):
    passes = of("pass", events)
    passes[1]["indices"] = passes[0]["indices"]


CHANGES = {
    "the start of rank 1": (set_all("model", 1, buffers={"b": [9.0] * 4}), {"start"}),
    "summed": (gradient(0, lambda _: [2 * number for number in AVERAGE]), {"gradients"}),
    "divided twice": (gradient(0, lambda _: [number / 2 for number in AVERAGE]), {"gradients"}),
    "not averaged, and replicas that differ": (
        lambda events, number: (gradient(0, lambda number: ALONE[number])(events, number), shifted(events, number)),
        {"gradients", "replicas"},
    ),
    "clipped before": (gradient(2, lambda number: ALONE[number]), {"gradients"}),
    "not set to zero": (gradient(3, lambda _: [AVERAGE]), {"gradients"}),
    "replicas that differ from step 5 on": (shifted, {"replicas"}),
    "the same samples": (same_samples, {"samples"}),
    "the same samples, which are changed at random": (
        lambda events, number: (
            same_samples(events, number),
            set_all("end", samples=[[100.0 * number + place for place in range(40)]])(events, number),
        ),
        {"samples"},
    ),
    "half of the data": (set_all("pass", size=90), {"samples"}),
    "the same order": (replaced_order, {"samples"}),
    "frozen": (gradient(4, lambda _: False), {"parameters"}),
    "unchanged": (
        set_all("step", values={"w": [1.0] * 4}),
        {"parameters"},
    ),
    "no step": (lambda events, _: [events.remove(step) for step in of("step", events)], {"parameters"}),
    "without a gradient": (set_all("end", with_gradient=[], without_gradient=["w"]), {"parameters"}),
    "another rate": (set_all("step", 1, rates=[0.2]), {"loss"}),
    "no rate": (set_all("step", rates=[0.0]), {"loss"}),
    "a schedule that is stepped twice": (
        set_all("end", schedulers=[{"kind": "StepLR", "num": 20, "num_before": 1, "num_steps": 10}]),
        {"loss"},
    ),
    "fewer terms": (set_all("step", 1, losses=[[1.0, 3.0, 1.0]]), {"loss"}),
    "micro-batches that are added": (set_all("step", num_batches=2, losses=[[1.0, 4.0, 1.0]] * 2), {"loss"}),
    "evaluated in training mode": (set_all("evaluation", layers=[True]), {"evaluation"}),
    "trained in evaluation mode": (set_all("end", inactive={"Net": 5}), {"evaluation"}),
    "a copy of the start": (set_all("evaluation", is_trained=False, parameters=[["w", AT_START, AT_END]]), {"evaluation"}),
    "samples that are held out and trained": (set_all("evaluation", samples={"0": [*range(10), *range(900, 910)]}), {"evaluation"}),
    "the same dropout": (set_all("end", random=[5]), {"random"}),
    "a loss that is not finite": (set_all("step", 1, losses=[[float("nan"), 4.0, 1.0]]), {"state"}),
    "skipped for ever": (set_all("end", num_skipped_last=9), {"state"}),
    "a schedule before the first step": (
        set_all("end", schedulers=[{"kind": "StepLR", "num": 2, "num_before": 0, "num_steps": 10}]),
        {"state"},
    ),
}
RIGHT = {
    "parameters that are averaged now and then": lambda events, number: (
        gradient(0, lambda number: ALONE[number])(events, number),
        [of("step", events)[place]["values"]["w"].__setitem__(1, float(number)) for place in (1, 2, 4, 5, 7, 8)],
    ),
    "a second training in the order of the first": lambda events, number: (
        replaced_order(events, number),
        of("pass", events)[1].update(begins=True),
    ),
    "nothing changed": lambda events, number: None,
    "clipped after averaging": gradient(2, lambda _: AVERAGE),
    "scaled by a scaler": lambda events, number: (
        gradient(0, lambda _: [value / 8 for value in AVERAGE])(events, number),
        set_all("step", scale=8.0, losses=[[1.0, 4.0, 8.0]])(events, number),
    ),
    "a sum of losses that are divided by the number of ranks": lambda events, number: (
        gradient(0, lambda _: [2 * value for value in AVERAGE])(events, number),
        set_all("step", losses=[[1.0, 4.0, 0.5]])(events, number),
    ),
    "weights by the number of terms": lambda events, number: set_all("step", losses=[[1.0, 3.0, 0.75]] if number else [[1.0, 4.0, 1.0]])(
        events, number
    ),
    "more data than indices that are kept": set_all("pass", size=90, is_cut=True),
    "micro-batches that are averaged": set_all("step", num_batches=2, losses=[[1.0, 4.0, 0.5]] * 2),
    "micro-batches whose gradients are divided": lambda events, number: (
        set_all("step", num_batches=2, losses=[[1.0, 4.0, 1.0]] * 2)(events, number),
        gradient(0, lambda _: [value / 2 for value in AVERAGE])(events, number),
        gradient(3, lambda _: [None, AVERAGE])(events, number),
    ),
    "a model that each step computes in training mode and without gradients": lambda events, number: (
        set_all("evaluation", layers=[True])(events, number),
        events.extend(of("evaluation", events) * 8),
    ),
    "a model that each step computes so, of which the first calls are seen": lambda events, number: (
        set_all("evaluation", layers=[True], steps=1)(events, number),
        set_all("end", num_steps=1000)(events, number),
    ),
    "an average that is saved before it begins, beside the model": lambda events, _: events.append(
        {"event": "saved", "steps": NUM_STEPS, "parameters": [["w", AT_END, AT_END], ["w", AT_START, AT_END]], "world_size": 2}
    ),
    "an average that is evaluated": set_all("evaluation", is_trained=False, parameters=[["w", [5.0, 1.0, 1.0, 1.0], AT_END]]),
    "training and other samples evaluated": set_all("evaluation", samples={"0": [*range(20)], "1": [*range(900, 920)]}),
    "a second model, which is trained on what the first holds out": lambda events, number: set_all(
        "end", samples=[of("end", events)[0]["samples"][0], [*range(900 + 10 * number, 910 + 10 * number)]]
    )(events, number),
    "the training samples evaluated": set_all("evaluation", samples={"0": [float(place) for place in range(40)]}),
    "a pass in the order of the data": set_all("pass", indices=[], trains=False),
}


@pytest.mark.parametrize(("change", "expected"), CHANGES.values(), ids=CHANGES.keys())
def test_what_is_wrong_is_named(change, expected):
    assert wrong(change) == expected


@pytest.mark.parametrize("change", RIGHT.values(), ids=RIGHT.keys())
def test_what_is_right_raises_no_alarm(change):
    assert wrong(change) == set()


def test_what_cannot_be_seen_has_its_reason():
    reasons = {name: verdict.reason for name, verdict in verdicts(numbers=(0,)).items() if verdict.verdict == checks.UNSEEN}
    assert set(reasons.values()) == {"1 of 2 ranks were seen"}
    assert {verdict.reason for verdict in checks.judge([])} == {
        "no process with this environment computed gradients with PyTorch 2.5 or newer"
    }
    failure = {"event": "failed", "error": "KeyError: 3", "rank": 0, "world_size": 2}
    for failed in (verdicts(lambda events, _: events.append(failure)).values(), checks.judge([[failure]])):
        assert {verdict[1:] for verdict in failed} == {(checks.UNSEEN, "the probe failed on rank 0: KeyError: 3")}
    # A process that is killed writes no end.
    killed = verdicts(lambda events, _: [events.remove(event) for event in of("end", events)])
    assert (killed["replicas"].verdict, killed["random"].verdict) == (checks.RIGHT, checks.UNSEEN)
    alone = verdicts(lambda events, _: [event.update(world_size=1) for event in events], (0,))
    assert alone["replicas"].reason == "there is one rank"
    assert alone["parameters"].verdict == checks.RIGHT
