"""What the checks of tests/gpu.sh share, as a plugin of pytest: its options, the session, and what a check has measured beside its name."""

from pathlib import Path

import pytest

from common.errors import UserError
from tests.gpu.running import Session

SESSION = pytest.StashKey()


def pytest_addoption(parser):
    parser.addoption("--folder", type=Path, required=True, help="the folder for records, traces and what the runs printed")
    parser.addoption("--device", choices=("auto", "cpu", "cuda"), default="auto", help="cpu: a rehearsal with small models")
    parser.addoption("--minutes", type=float, default=9.5, help="time limit; what does not fit is skipped")
    parser.addoption("--backends", help="only these, separated by commas; default: every backend that can run here")


def pytest_configure(config):
    options = config.option
    try:
        config.stash[SESSION] = Session.begin(options.folder.absolute(), options.device, 60 * options.minutes, options.backends)
    except UserError as problem:
        raise pytest.UsageError(str(problem)) from None


def pytest_report_header(config):
    return config.stash[SESSION].about


@pytest.fixture(scope="module")
def session(request):
    """The session of a part, which may take `SHARE` of the whole time, or all of it where no other part was chosen."""
    num_parts = len({item.path for item in request.session.items})
    return request.config.stash[SESSION].part(request.module.SHARE if num_parts > 1 else 1.0)


@pytest.fixture
def measured(record_property):
    """{name: value} that a check fills with what it measured."""
    numbers = {}
    record_property("measured", numbers)
    return numbers


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") and not item.config.stash[SESSION].on_gpu:
        pytest.skip("it needs a GPU")


def pytest_report_teststatus(report):
    if report.when != "call" or not report.passed:
        return None
    numbers = dict(report.user_properties).get("measured", {})
    shown = ", ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in numbers.items())
    return "passed", ".", f"PASSED {report.duration:.1f} s {shown}"
