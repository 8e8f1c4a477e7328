"""launch/setup/find_python.sh takes the Python that is named, else conda's, else the preferred one of those on PATH."""

import subprocess

import pytest

from tests.support.running import ROOT


def make_pythons(folder, versions):
    """Programs that print their version, by name; None makes one that does not start, as pyenv's."""
    for name, version in versions.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\necho {version}\n" if version else "#!/bin/bash\necho 'not found' >&2\nexit 127\n")
        path.chmod(0o755)


def find(folder, *arguments, **variables):
    """The CompletedProcess of the script, to which only the programs of the folder are known."""
    command = ["/bin/bash", ROOT / "launch/setup/find_python.sh", *arguments]
    return subprocess.run(
        command, env={"PATH": str(folder)} | variables, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("versions", "named", "expected"),
    [
        ({"python3.11": "3.11", "python3.12": "3.12", "python3": "3.13"}, None, "python3.11 3.11"),
        ({"python3.12": "3.12", "python3": "3.11"}, None, "python3 3.11"),
        ({"python3.12": "3.12", "python3": "3.13"}, None, "python3.12 3.12"),
        ({"python3.11": None, "python3.12": "3.12"}, None, "python3.12 3.12"),
        ({"python3.13": "3.13", "python3": "3.14"}, None, "python3.13 3.13"),
        ({"python3.11": "3.11", "site/python": "3.12"}, "site/python", "site/python 3.12"),
        ({"python3.11": "3.11", "conda/bin/python": "3.12"}, None, "conda/bin/python 3.12"),
        ({"python3.11": "3.11", "conda/bin/python": "3.14"}, None, "python3.11 3.11"),
        ({"python3.11": "3.11", "conda/bin/python": "3.12"}, "python3.11", "python3.11 3.11"),
    ],
)
def test_the_chosen_python(versions, named, expected, tmp_path):
    make_pythons(tmp_path, versions)
    conda = ["conda"] if "conda/bin/python" in versions else []
    done = find(tmp_path, *conda, **({"TANDEM_PYTHON": named} if named else {}))
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, expected.split(), "")


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (None, "no Python 3.11 to 3.13 found; install it (uv python install 3.11, "),
        ("python3", "TANDEM_PYTHON is 'python3', which is Python 3.14, not Python 3.11 to 3.13; set it to one of them"),
        ("missing", "TANDEM_PYTHON is 'missing', which is not Python 3.11 to 3.13; set it to one of them"),
    ],
)
def test_a_python_that_cannot_be_used_is_refused_in_one_line(named, message, tmp_path):
    make_pythons(tmp_path, {"python3": "3.14", "python3.10": "3.10"})
    done = find(tmp_path, **({"TANDEM_PYTHON": named} if named else {}))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr
