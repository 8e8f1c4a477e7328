"""The verdicts on training scripts that are known to be right or wrong, each really trained by two ranks."""

import json

import pytest

from launch.auditing import checks
from launch.auditing.watching import tandem_probe
from tests.launch.auditing.editing import script_text
from tests.launch.auditing.right import RIGHT
from tests.launch.auditing.running import run
from tests.launch.auditing.wrong import WRONG

pytestmark = pytest.mark.matrix
NUM_STEPS = 50
# In sharded parameters, buffers, the state of an optimizer and orders without a loader, and
# where what is watched looks as in right scripts.
NOT_SEEN = (
    "average-never-updated", "batches-of-one-sample", "buffer-of-the-evaluation", "clamped-as-they-come", "initialized-by-rank-sharded",
    "loss-times-size-sharded", "optimizer-state-behind-after-join", "same-order-of-texts", "same-order-without-loader",
    "tested-on-training-samples",
)  # fmt: skip


def with_first(names, kind_of):
    """Parameters of which those after the first of their kind are tested before a release."""
    first = {kind_of(name): name for name in [*names][::-1]}
    return [pytest.param(name, marks=() if name in first.values() else pytest.mark.long) for name in names]


def checks_of(name):
    return (WRONG[name].check,) if isinstance(WRONG[name].check, str) else WRONG[name].check


def wrong_checks(text, folder):
    """The checks that are wrong in a script, {name: reason}, which ends well by itself."""
    (folder / "observed").mkdir()
    assert run(text, 2, lambda: tandem_probe.install(str(folder / "observed"), NUM_STEPS), folder) == [0, 0]
    processes = [[json.loads(line) for line in path.read_text().splitlines()] for path in (folder / "observed").iterdir()]
    verdicts = checks.judge(processes)
    assert not [verdict.reason for verdict in verdicts if "probe failed" in verdict.reason]
    assert [verdict.check for verdict in verdicts if verdict.verdict != checks.UNSEEN]
    return {verdict.check: verdict.reason for verdict in verdicts if verdict.verdict == checks.WRONG}


@pytest.mark.parametrize("name", with_first(RIGHT, lambda name: RIGHT[name][0]))
def test_a_right_script_raises_no_alarm(name, tmp_path):
    assert wrong_checks(script_text(*RIGHT[name]), tmp_path) == {}


@pytest.mark.parametrize("name", with_first(WRONG, lambda name: checks_of(name)[0]))
def test_a_wrong_script_is_found_and_its_check_is_named(name, tmp_path):
    reasons = wrong_checks(script_text(*WRONG[name][:2]), tmp_path)
    assert bool(reasons.keys() & set(checks_of(name))) is (name not in NOT_SEEN), reasons
