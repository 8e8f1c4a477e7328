"""What the checks of tests/gpu.sh share: the session of a part, what a check measured, and the summary of all checks."""

import json
import time
from pathlib import Path
from typing import NamedTuple

import pytest

SESSION = pytest.StashKey()
STATUSES = ("ok", "skipped", "failed")


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
    """Gives the checks their Session and writes summary.txt and summary.json; `begun` is time.monotonic() at the start."""

    def __init__(self, session, begun):
        self.session, self.begun, self.checks = session, begun, []

    def pytest_configure(self, config):
        config.stash[SESSION] = self.session

    @pytest.fixture(scope="module", name="session")
    def session_of_part(self, request):
        """The session of a part, which may take `SHARE` of the whole time."""
        return self.session.part(request.module.SHARE)

    @pytest.fixture
    def measured(self):
        """{name: value} that a check fills with what it measured."""
        return {}

    def pytest_collection_modifyitems(self, items):
        # Where there is nothing to compare, pytest would skip a test without parameters.
        items[:] = [item for item in items if not item.name.endswith("[NOTSET]")]

    def pytest_runtest_setup(self, item):
        if item.get_closest_marker("gpu") and not self.session.on_gpu:
            pytest.skip("it needs a GPU")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        if call.excinfo or call.when == "call":
            status, reason = outcome(call.excinfo)
            what = item.callspec.id if hasattr(item, "callspec") else item.name.removeprefix("test_").replace("_", " ")
            self.checks.append(Check(item.path.stem, what, call.duration, status, reason, item.funcargs.get("measured", {})))
            print(self.checks[-1].line(), flush=True)
        return (yield)

    def pytest_sessionfinish(self):
        seconds = time.monotonic() - self.begun
        text, folder = summary(self.checks, self.session.about, seconds), Path(self.session.folder)
        (folder / "summary.txt").write_text(text)
        result = {"about": self.session.about, "seconds": seconds, "checks": [check._asdict() for check in self.checks]}
        (folder / "summary.json").write_text(json.dumps(result, indent=1))
        print(f"{text}written to {folder}")


def outcome(raised):
    """(status, reason) of a check, from the ExceptionInfo of what it raised, or None."""
    if raised is None:
        return "ok", ""
    message = str(raised.value).partition("\n")[0]
    if raised.errisinstance(pytest.skip.Exception):
        return "skipped", message
    return "failed", message if raised.errisinstance(AssertionError) else f"{raised.typename}: {message}"


def summary(checks, about, seconds):
    """A table of all checks, and how many there are of each status."""
    counts = ", ".join(f"{sum(check.status == status for check in checks)} {status}" for status in STATUSES)
    return "\n".join([about, *(check.line() for check in checks), f"{counts}; {seconds:.0f} s", ""])
