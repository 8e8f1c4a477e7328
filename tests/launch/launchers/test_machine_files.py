"""Machine files: parsing, errors, and their effect on the settings."""

import pytest

from common.command_line import parse
from common.config import Settings
from common.errors import UserError
from launch.launchers import machine_files
from launch.launchers.commands import PYTHON
from launch.launchers.machine_files import Machine, python_of, read, variables_of
from launch.matrix import settings_of
from launch.run.options import Matrix
from tests.support.mistakes import refused
from tests.support.running import completed


@pytest.mark.parametrize("name", machine_files.names())
def test_every_machine_in_the_folder_can_be_read(name):
    assert isinstance(read(name), Machine)


def test_a_laptop_is_as_without_a_file():
    assert read("local") == Machine()


@pytest.mark.parametrize(
    ("arguments", "threads", "device"),
    [([], 8, "cuda"), (["--threads", "2"], 2, "cuda"), (["--threads", "1"], 1, "cuda"), (["--device", "auto"], 8, "auto")],
)
def test_the_command_line_overrides_the_machine_file_also_with_a_default(arguments, threads, device):
    settings = settings_of(parse(Matrix, "it", "", arguments), Machine(threads=8, device="cuda"))
    assert (settings.threads, settings.device, settings.seed) == (threads, device, Settings.seed)


def test_every_rank_has_the_keys_of_gpus_and_network_in_its_environment():
    machine = Machine(host_suffix="i", gpu_order="reversed", variables={"A": "b"})
    assert variables_of(machine) == {"TANDEM_GPU_ORDER": "reversed", "TANDEM_HOST_SUFFIX": "i", "A": "b"}
    assert variables_of(Machine()) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('lancher = "pals"', "mine.toml: lancher: there is no such key; launch/README.md has the keys"),
        ('launcher = "qrun"', "launcher: it should be 'mpich', 'openmpi'"),
        ("threads = 0", "threads: it should be greater than or equal to 1, not 0"),
        ("threads = true", "threads: it should be a valid integer, not true"),
        (f"launcher = {['x' * 5000]}", "launcher: it should be "),
        ('[variables]\n"X;touch f;Y" = "c"', "variables/X;touch f;Y/[key]: String should match pattern"),
        ('[variables]\nOMP_NUM_THREADS = "4"', "OMP_NUM_THREADS contradicts --threads"),
        ("[variables]\nA = 1", "variables/A: it should be a valid string, not 1"),
        ("threads = 1".encode("utf-16"), "mine.toml, line 1: byte 0xff is not UTF-8"),
        ("[queues]\ndebug = {minutes = 0}", "queues/debug/minutes: it should be greater than or equal to 1, not 0"),
        ("[queues]\ndebug = {node = 2}", "queues/debug/node: there is no such key"),
        ("threads", "is not valid TOML"),
        ('launcher_args = "--comment \\"a"', "mine.toml: launcher_args is '--comment \"a': no closing quotation"),
        ('[variables]\nA = "x\\u0000y"', "mine.toml has the character NUL"),
        ("python = []", "python is []; it must be a path, or the words of a command"),
        ('python = ["env", 1]', 'python/str: it should be a valid string, not ["env", 1]'),
    ],
)
def test_an_invalid_file_is_refused(text, message, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with refused(message):
        read(str(path))


@pytest.mark.parametrize("name", ["nowhere", "nowhere.toml", "", "../machines/jsc", "a\0b", "x" * 5000])
def test_the_error_for_an_unknown_machine_lists_the_known_ones(name):
    with pytest.raises(UserError, match="jsc, jupiter, jureca, local, perlmutter, perlmutter-shifter, polaris"):
        read(name)


@pytest.mark.parametrize(("python", "expected"), [(None, PYTHON), ("path/python", ("path/python",)), (["env", "A=b c"], ("env", "A=b c"))])
def test_the_ranks_python_is_a_path_or_a_command(python, expected):
    assert python_of(Machine(python=python)) == expected


@pytest.mark.parametrize(
    ("prologue", "printed"), [("export A='d e'  # of a module\n", (0, "d e x $A\n")), ("echo no such module >&2; false", (1, ""))]
)
def test_the_ranks_python_runs_behind_the_prologue(prologue, printed):
    done = completed(*python_of(Machine(python=["bash", "-c", 'echo "$A" "$1"', "bash"], prologue=prologue)), "x $A")
    assert (done.returncode, done.stdout) == printed
