"""Machine files: parsing, errors, and their effect on the settings."""

import contextlib

import pytest

from common.config import Settings
from common.errors import UserError
from common.process.binding import gpu_for, gpus_chosen
from launch.launchers import machine_files
from launch.launchers.machine_files import Machine, applied, read
from tests.support.mistakes import refused


@pytest.mark.parametrize("name", machine_files.names())
def test_every_machine_in_the_folder_can_be_read(name):
    assert isinstance(read(name), Machine)


def test_the_settings_of_polaris():
    polaris = read("polaris")
    assert (polaris.launcher, polaris.ranks_per_node, polaris.gpu_order) == ("pals", 4, "reversed")
    assert (polaris.host_suffix, polaris.variables["GLOO_SOCKET_IFNAME"]) == (".hsn.cm.polaris.alcf.anl.gov", "hsn0")


def test_a_laptop_is_as_without_a_file():
    assert read("local") == Machine()
    assert applied(read("local"), Settings(seed=3)) == Settings(seed=3)


def test_the_command_line_overrides_the_machine_file():
    machine = Machine(threads=8, host_suffix="i", gpu_order="reversed")
    assert applied(machine, Settings()) == Settings(threads=8, host_suffix="i", gpu_order="reversed")
    assert applied(machine, Settings(threads=2, host_suffix=".ib")) == Settings(threads=2, host_suffix=".ib", gpu_order="reversed")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('lancher = "pals"', "unknown key 'lancher'"),
        ('launcher = "qrun"', "launcher is 'qrun'; choose from"),
        ("threads = 0", "threads is 0; it must be at least 1"),
        ("threads = true", "threads is True; it must be an integer"),
        ('threads = "8"', "threads is '8'; it must be an integer"),
        ('gpu_order = "random"', "choose from: local, reversed"),
        ("[variables]\nA = 1", 'A = "1"'),
        ("threads", "is not valid TOML"),
    ],
)
def test_an_invalid_file_is_refused(text, message, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with refused(message):
        read(str(path))


@pytest.mark.parametrize("name", ["nowhere", "nowhere.toml"])
def test_the_error_for_an_unknown_machine_lists_the_known_ones(name):
    with pytest.raises(UserError, match="jsc, local, polaris"):
        read(name)


@pytest.mark.parametrize(
    ("num_gpus", "local_rank", "local_size", "order", "chosen", "gpu"),
    [
        (4, 0, 4, "local", False, 0), (4, 3, 4, "local", False, 3), (4, 0, 4, "reversed", False, 3), (4, 3, 4, "reversed", True, 0),
        (4, 1, 2, "reversed", False, 2), (1, 3, 4, "reversed", True, 0), (1, 1, 2, "local", True, 0), (1, 0, 1, "local", False, 0),
        (4, 0, 5, "local", False, "5 ranks on a node with 4 GPUs"), (4, 4, 5, "local", True, "5 ranks on a node with 4 GPUs"),
        # The launcher has not selected one GPU per rank.
        (1, 0, 2, "local", False, "2 ranks on a node with 1 GPU;"), (1, 1, 2, "local", False, "2 ranks on a node with 1 GPU;"),
    ],
)  # fmt: skip
def test_a_rank_takes_the_gpu_of_its_local_rank_and_shares_none_unless_it_may(num_gpus, local_rank, local_size, order, chosen, gpu):
    with refused(gpu) if isinstance(gpu, str) else contextlib.nullcontext():
        assert gpu_for(num_gpus, local_rank, local_size, order, chosen) == gpu
    assert gpu_for(num_gpus, local_rank, local_size, "local", chosen, may_share=True) == local_rank % num_gpus


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"])
def test_a_launcher_may_select_the_visible_gpus(name):
    assert gpus_chosen({name: "2"})
    assert not gpus_chosen({"PATH": "/bin"})
