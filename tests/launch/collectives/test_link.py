"""Between two hosts whose link has a known bandwidth, every library's beta is that of the link."""

import contextlib
import json

import psutil
import pytest

from tests.support import two_hosts

pytestmark = [pytest.mark.matrix, pytest.mark.long]
RATE, BYTES_PER_SECOND = "50mbit", 50e6 / 8


@contextlib.contextmanager
def first_of_all():
    """Context in which what is started comes before all other processes of this machine, such as other tests, where that is allowed."""
    process = psutil.Process()
    before = process.nice()
    with contextlib.suppress(psutil.AccessDenied):
        process.nice(-20)
    try:
        yield
    finally:
        process.nice(before)


def test_beta_is_that_of_the_link(checkout, tmp_path):
    if why_not := two_hosts.why_not():
        pytest.skip(why_not)
    # Sizes that take longer than Horovod's cycle. At 2 ranks an all-reduce sends as many bytes as it has.
    options = ("--collectives", "all_reduce", "-b", "128K", "-e", "2M", "--repeats", 3, "--json", tmp_path / "out.json")
    with two_hosts.joined() as folder, two_hosts.narrowed(RATE), first_of_all():
        done = two_hosts.on_both(folder, checkout, "launch.collectives", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["num_nodes"] == 2
    betas = {fit["library"]: fit["regimes"][-1]["beta_seconds_per_byte"] for fit in document["fits"]}
    assert betas == {library: pytest.approx(1 / BYTES_PER_SECOND, rel=0.2) for library in ("mpi", "gloo", "horovod_torch")}
