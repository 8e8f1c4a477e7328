"""Machine files: what is read from them, what is refused, and what they do to the settings."""

import pytest

from common.binding import gpu_for, gpus_chosen
from common.config import Settings
from common.errors import UserError
from launch import machines
from launch.machines import Machine, applied, read


@pytest.mark.parametrize("name", machines.names())
def test_every_machine_in_the_folder_can_be_read(name):
    assert isinstance(read(name), Machine)


def test_polaris_says_what_is_particular_there():
    polaris = read("polaris")
    assert (polaris.launcher, polaris.ranks_per_node, polaris.gpu_order) == ("pals", 4, "reversed")
    assert polaris.host_suffix == ".hsn.cm.polaris.alcf.anl.gov"
    assert polaris.variables["GLOO_SOCKET_IFNAME"] == "hsn0"


def test_a_laptop_is_as_without_a_file():
    assert read("local") == Machine()
    assert applied(read("local"), Settings(seed=3)) == Settings(seed=3)


def test_what_is_given_stands_above_the_file():
    machine = Machine(threads=8, host_suffix="i", gpu_order="reversed")
    assert applied(machine, Settings()) == Settings(threads=8, host_suffix="i", gpu_order="reversed")
    assert applied(machine, Settings(threads=2, host_suffix=".ib")) == Settings(threads=2, host_suffix=".ib", gpu_order="reversed")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('lancher = "pals"', "unknown key 'lancher'"),
        ('launcher = "qrun"', "launcher is 'qrun'; choose from"),
        ("threads = 0", "threads is 0; it must be a whole number from 1"),
        ("threads = true", "threads is True; it must be a whole number"),
        ('threads = "8"', "threads is '8'; it must be a whole number"),
        ('gpu_order = "random"', "choose from: local, reversed"),
        ("[variables]\nA = 1", 'A = "1"'),
        ("threads", "is no TOML"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(text, said, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UserError) as raised:
        read(str(path))
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["nowhere", "nowhere.toml"])
def test_a_machine_that_is_not_there_is_refused_with_those_that_are(name):
    with pytest.raises(UserError, match="jsc, local, polaris"):
        read(name)


@pytest.mark.parametrize(
    ("num_gpus", "local_rank", "local_size", "order", "chosen", "gpu"),
    [(4, 0, 4, "local", False, 0), (4, 3, 4, "local", False, 3), (4, 0, 4, "reversed", False, 3), (4, 3, 4, "reversed", True, 0),
     (4, 1, 2, "reversed", False, 2), (1, 3, 4, "reversed", True, 0), (1, 1, 2, "local", True, 0), (1, 0, 1, "local", False, 0)],
)  # fmt: skip
def test_a_rank_takes_the_gpu_of_its_local_rank(num_gpus, local_rank, local_size, order, chosen, gpu):
    assert gpu_for(num_gpus, local_rank, local_size, order, chosen) == gpu


@pytest.mark.parametrize(
    ("num_gpus", "local_rank", "local_size", "chosen", "told"),
    [
        (4, 0, 5, False, "5 ranks on a node with 4 GPUs"),
        (4, 4, 5, True, "5 ranks on a node with 4 GPUs"),
        # No launcher has given each its own.
        (1, 0, 2, False, "2 ranks on a node with 1 GPU;"),
        (1, 1, 2, False, "2 ranks on a node with 1 GPU;"),
    ],
)
def test_ranks_do_not_share_gpus(num_gpus, local_rank, local_size, chosen, told):
    with pytest.raises(UserError, match=told):
        gpu_for(num_gpus, local_rank, local_size, "local", chosen)


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"])
def test_a_launcher_says_which_gpus_a_rank_sees(name):
    assert gpus_chosen({name: "2"})
    assert not gpus_chosen({"PATH": "/bin"})
