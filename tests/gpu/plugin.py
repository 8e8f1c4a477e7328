"""What the checks of tests/gpu.sh share: the session of a part, what a check measured, and the summary of all checks."""

import collections
import json
import time
from pathlib import Path
from typing import NamedTuple

import pytest

SESSION = pytest.StashKey()
STATUSES = {"passed": "ok", "skipped": "skipped", "failed": "failed"}


class Check(NamedTuple):
    """A check that was made: `status` is ok, skipped or failed, with the reason."""

    part: str
    what: str
    seconds: float
    status: str
    reason: str
    numbers: dict

    def line(self):
        shown = ", ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in self.numbers.items())
        return f"{self.part:<10} {self.what:<58} {self.seconds:7.1f} s  {self.status:<8} {self.reason or shown}".rstrip()


class Plugin:
    """Gives the checks their Session and writes summary.txt and summary.json; `begun` is time.monotonic() at the start.

    `only`: text that the checks to make have in their lines, or None for all.
    """

    def __init__(self, session, begun, only=None):
        self.session, self.begun, self.only, self.checks = session, begun, only, []

    def pytest_configure(self, config):
        config.stash[SESSION] = self.session

    @pytest.fixture(scope="module", name="session")
    def session_of_part(self, request):
        """The session of a part, which may take `SHARE` of the whole time, or all of it where no other part was chosen."""
        num_parts = len({item.path for item in request.session.items})
        return self.session.part(request.module.SHARE if num_parts > 1 else 1.0)

    @pytest.fixture
    def measured(self, record_property):
        """{name: value} that a check fills with what it measured."""
        numbers = {}
        record_property("measured", numbers)
        return numbers

    def pytest_collection_modifyitems(self, items):
        # Where there is nothing to compare, pytest would skip a test without parameters.
        items[:] = [item for item in items if not item.name.endswith("[NOTSET]") and (self.only or "") in what(item.name)]

    def pytest_runtest_setup(self, item):
        if item.get_closest_marker("gpu") and not self.session.on_gpu:
            pytest.skip("it needs a GPU")

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or not report.passed:
            path, _, name = report.location
            numbers = dict(report.user_properties).get("measured", {})
            self.checks.append(Check(Path(path).stem, what(name), report.duration, STATUSES[report.outcome], reason(report), numbers))
            print(self.checks[-1].line(), flush=True)

    def pytest_sessionfinish(self):
        seconds = time.monotonic() - self.begun
        counts = collections.Counter(check.status for check in self.checks)
        total = f"{', '.join(f'{counts[status]} {status}' for status in STATUSES.values())}; {seconds:.0f} s"
        text = "\n".join([self.session.about, *(check.line() for check in self.checks), total, ""])
        (self.session.folder / "summary.txt").write_text(text)
        result = {"about": self.session.about, "seconds": seconds, "checks": [check._asdict() for check in self.checks]}
        (self.session.folder / "summary.json").write_text(json.dumps(result, indent=1))
        print(f"{text}written to {self.session.folder}")


def what(name):
    """What a check looks at, from the name of its test: the parameters, or the words of the function where it has none."""
    function, _, parameters = name.removeprefix("test_").partition("[")
    return parameters.removesuffix("]") or function.replace("_", " ")


def reason(report):
    """Why a check was skipped or failed, in one line; empty where it passed."""
    if report.passed:
        return ""
    message = report.longrepr[2] if report.skipped else report.longrepr.reprcrash.message
    return message.partition("\n")[0].removeprefix("Skipped: ").removeprefix("AssertionError: ")
