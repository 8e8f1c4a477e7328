"""AMD's GPUs, as Linux and PyTorch for ROCm show them. The files are artificial: none of this has been seen on such a GPU."""

import math

import pytest

from common.process import amd, energy, gpus, node_memory, noise
from common.record.parts import Gpu
from common.trainer import Device
from launch.run import room
from tests.support.mistakes import refused
from tests.support.rank_0 import Rank0

GIB = 2**30
# A processor, halves of an MI250X in the order of Linux, not of their numbers, and a GPU that a control group hides.
NODES = {"0": (0, 0, 0), "4": (51140, 0xD100, 90010), "10": (30381, 0xD600, 90010), "11": (None, 0xC900, 90010)}
ON_HALF = Device("cuda", 0, False, None, None, "2.22.3", rocm="6.4.43482", model="AMD Instinct MI250X", pci_bus_id="0000:d1:00.0")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node with two GPUs, on which process 7 has 3 GiB and process 9 none; the folder of its files."""
    for name, (number, location, architecture) in NODES.items():
        (tmp_path / "nodes" / name / "gpu_id").mkdir(parents=True) if number is None else write(
            tmp_path / "nodes" / name / "gpu_id", number
        )
        properties = {"simd_count": 440, "gfx_target_version": architecture, "location_id": location, "domain": 0}
        write(tmp_path / "nodes" / name / "properties", "\n".join(f"{key} {value}" for key, value in properties.items()))
    write(tmp_path / "proc" / "7" / "vram_51140", 3 * GIB)
    write(tmp_path / "proc" / "7" / "vram_30381", 0)
    write(tmp_path / "proc" / "9" / "pasid", 32769)
    for bus_id, used_bytes in {"0000:d1:00.0": 4 * GIB, "0000:d6:00.0": GIB}.items():
        write(tmp_path / "pci" / bus_id / "mem_info_vram_total", 64 * GIB)
        write(tmp_path / "pci" / bus_id / "mem_info_vram_used", used_bytes)
    write(tmp_path / "pci" / "0000:d1:00.0" / "hwmon" / "hwmon5" / "freq1_input", 1_700_000_000)
    for name, path in {"NODES": "nodes", "PROCESSES": "proc", "PCI": "pci", "DRIVER": "version"}.items():
        monkeypatch.setattr(amd, name, tmp_path / path)
    for name in ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(gpus, "vendor", lambda: amd)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hip: Optional[str] = None\nrocm: Optional[str] = '6.4'", False),
        ("cuda: Optional[str] = None\nhip: Optional[str] = '6.4.43482-0f2d60242'", True),
        ("hip = '5.7.31921'", True),
        ("cuda: Optional[str] = '13.0'", False),
        (None, False),
    ],
)
def test_the_version_of_pytorch_says_whether_it_is_for_these_gpus(text, expected, tmp_path):
    if text is not None:
        write(tmp_path / "version.py", text)
    assert amd.is_pytorch_for_rocm(tmp_path / "version.py") is expected


def test_the_pytorch_here_is_not_for_them():
    assert gpus.vendor() is not amd


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, 8),
        ({"ROCR_VISIBLE_DEVICES": "4"}, 1),
        ({"ROCR_VISIBLE_DEVICES": "0, 2,GPU-DEADBEEFDEADBEEF"}, 3),
        ({"ROCR_VISIBLE_DEVICES": ""}, 0),
        # An invalid number hides what follows it, and none is counted twice.
        ({"ROCR_VISIBLE_DEVICES": "1,8,2"}, 1),
        ({"HIP_VISIBLE_DEVICES": "1,1,-1,2"}, 1),
        # HIP numbers what ROCr has left.
        ({"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "0,1,2"}, 2),
        ({"ROCR_VISIBLE_DEVICES": "4", "HIP_VISIBLE_DEVICES": "4"}, 0),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "0,1,2"}, 1),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2"}, 3),
        ({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": ""}, 8),
    ],
)
def test_variables_select_gpus_in_the_order_that_rocm_documents(variables, expected):
    assert amd.num_visible(8, variables) == expected


def test_the_gpus_of_a_node_are_those_that_linux_lets_this_process_use(node, monkeypatch):
    assert [gpu[:2] for gpu in amd.all_gpus()] == [(51140, "0000:d1:00.0"), (30381, "0000:d6:00.0")]
    assert gpus.count() == 2
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "1")
    assert gpus.count() == 1
    assert gpus.all_models() == ["AMD gfx90a", "AMD gfx90a"]
    write(node / "version", "6.12.12")
    assert gpus.all_models()[-1] == "driver 6.12.12"
    monkeypatch.setattr(amd, "NODES", node / "nowhere")
    assert (gpus.count(), gpus.all_models()) == (None, ["driver 6.12.12"])


@pytest.mark.parametrize(("architecture", "name"), [(90010, "gfx90a"), (90402, "gfx942"), (110001, "gfx1101")])
def test_an_architecture_has_the_name_that_compilers_give_it(architecture, name):
    assert amd.model(amd.Handle(1, "0000:d1:00.0", architecture)) == f"AMD {name}"


@pytest.mark.parametrize(
    ("location", "bus_id"),
    [(0xD100, "0002:d1:00.0"), (0x0708, "0002:07:01.0"), (0x20000000 | 0xD100, "0002:d1:00.0"), (0xD101, "0002:d1:00.0")],
)
def test_the_location_of_linux_is_a_pci_bus_id(location, bus_id, tmp_path, monkeypatch):
    write(tmp_path / "1" / "gpu_id", 7)
    write(tmp_path / "1" / "properties", f"location_id {location}\ndomain 2\ngfx_target_version 90402")
    monkeypatch.setattr(amd, "NODES", tmp_path)
    assert [gpu.bus_id for gpu in amd.all_gpus()] == [bus_id]


@pytest.mark.usefixtures("node")
def test_memory_is_that_of_linux_and_runs_must_fit_into_it():
    assert gpus.processes() == [(amd.all_gpus()[0], {7: 3 * GIB}), (amd.all_gpus()[1], {})]
    assert gpus.free_bytes() == [60 * GIB, 63 * GIB]
    assert node_memory.available_on_gpu() == 63 * GIB
    assert room.on_gpus([[7], [9]]) == [([3 * GIB, 0], 60 * GIB), ([0, 0], 63 * GIB)]
    assert gpus.memory_by_rank(Rank0(device=ON_HALF)).used_bytes == [4 * GIB]


def test_a_gpu_is_described_by_pytorch_and_by_linux_where_that_knows_more(node):
    gpu = Gpu("AMD Instinct MI250X", "0000:d1:00.0", None, None, None, "2.22.3", "6.4.43482")
    assert gpus.describe(ON_HALF) == gpu
    trainer = Rank0(device=ON_HALF)
    assert (noise.gpu_clock(trainer), noise.throttle_reasons(trainer)) == (1.7e9, None)
    (node / "pci" / "0000:d1:00.0" / "hwmon" / "hwmon5" / "freq1_input").unlink()
    assert math.isnan(noise.gpu_clock(trainer))
    assert gpus.memory_by_rank(Rank0(device=ON_HALF._replace(pci_bus_id="0000:0d:00.0"))).used_bytes == [None]


@pytest.mark.usefixtures("node")
def test_energy_is_not_known():
    assert math.isnan(energy.count_gpus([7])())


@pytest.mark.usefixtures("node")
def test_ranks_on_one_gpu_are_found_by_the_pci_bus_id_of_pytorch():
    trainer = Rank0(gpus.node_number(), gpus.pci_number("0000:d1:00.0"), device=ON_HALF)
    with refused("ranks 0 and 1 share the GPU 0000:d1:00.0; "):
        gpus.expect_own(trainer)


@pytest.mark.usefixtures("node")
def test_tf32_is_refused_and_other_precisions_are_not():
    problems = [gpus.precision_problem(precision, "cuda") for precision in ("fp32", "bf16", "fp64", "tf32")]
    assert problems == [None, None, None, "tf32 is of NVIDIA GPUs; use --precision fp32"]
