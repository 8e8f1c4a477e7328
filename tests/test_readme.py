"""What README and CONTRIBUTING say works and exists."""

import re
import shlex
import subprocess

import pytest

from common import backends
from tests.support.running import ROOT, environ

README = (ROOT / "README.md").read_text()
FOLDERS = ("common", "frameworks", "launch", "tests", "results")
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *(page for name in FOLDERS for page in (ROOT / name).rglob("README.md")),
]
PAGES += [ROOT / "launch" / "trace" / "TIMELINES.md"]
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines() if line.strip()]


# What a command is run with besides, so that it takes less time: other tests train every workload with every backend, and a test of
# the tests has only to find them.
SHORTER = {
    "launch/matrix.sh 1 2": ["--epochs", "1", "--backends", "single,ddp", "--workloads", "cnn"],
    "tests/run.sh": ["--collect-only", "-q"],
}


@pytest.mark.matrix
@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_readme_run(checkout, command):
    words = shlex.split(command, comments=True)
    done = subprocess.run(
        ["bash", "-c", shlex.join([*words, *SHORTER.get(shlex.join(words), [])])],
        cwd=checkout, env=environ(), capture_output=True, text=True, timeout=1500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_is_short():
    assert (len(README.splitlines()) <= 120, len(README.split()) <= 1200) == (True, True)


def test_the_readme_gives_the_two_commands_first():
    assert COMMANDS[:2] == ["launch/matrix.sh 1 2", "tests/run.sh"]


@pytest.mark.parametrize("document", ["CHANGELOG.md", *(str(path.relative_to(ROOT)) for path in PAGES)])
def test_every_file_that_is_named_exists(document):
    text = (ROOT / document).read_text()
    named = set(re.findall(r"`((?:common|frameworks|launch|tests|results)/[\w./]*\w/?)`", text))
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_readme_names_every_backend_of_the_default_matrix_and_its_page_every_one():
    assert [name for name in backends.chosen(None) if f"`{name}`" not in README] == []
    assert [name for name in backends.declared() if f"| `{name}` |" not in (ROOT / "frameworks" / "README.md").read_text()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text()):
        linked = (page.parent / target).resolve() if target else page
        assert linked.exists(), target
        headings = (
            [
                re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
                for line in linked.read_text().splitlines()
                if line.startswith("#")
            ]
            if anchor
            else []
        )
        assert not anchor or anchor in headings, (target, anchor)


def test_a_key_of_the_record_and_a_new_backend_are_two_hops_away():
    assert "communication_exposed_seconds" in README
    assert "communication_exposed_seconds`" in (ROOT / "results" / "README.md").read_text()
    assert "FSDP" in README
    assert "## Add a backend" in (ROOT / "frameworks" / "README.md").read_text()
