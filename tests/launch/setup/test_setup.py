"""launch/setup.sh reports in one line what is missing and how to fix it, and then changes nothing."""

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from launch.launchers.commands import ALLOCATIONS
from launch.setup import build_tools
from tests.support.running import ROOT, completed, copied

TOOLS = ("bash", "awk", "cat", "cut", "df", "dirname", "env", "flock", "g++", "grep", "make", "mkdir", "sed", "sha256sum", "sort", "uname")
PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture
def fresh(tmp_path):
    """A checkout without an environment, and a PATH with only the required tools."""
    for room in ("setup", "launchers"):
        (tmp_path / "tandem" / "launch" / room).mkdir(parents=True)
    files = ("environment.yml", "launch/setup.sh", "launch/launchers/commands.py")
    for path in (*(ROOT / name for name in files), *(ROOT / "launch/setup").glob("*.??")):
        shutil.copy2(path, tmp_path / "tandem" / path.relative_to(ROOT))
    shutil.copytree(ROOT / "launch" / "trace", tmp_path / "tandem" / "launch" / "trace")
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    (tmp_path / "bin" / PYTHON).symlink_to(Path(sys.base_prefix) / "bin" / PYTHON)
    return tmp_path


def make_script(path, text):
    """An executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def environ_of_setup(fresh):
    """The variables of a set-up that has only the required tools."""
    return {"PATH": str(fresh / "bin"), "HOME": str(fresh), "TANDEM_DEVICE": "cpu"}


def setup(fresh, *arguments, **variables):
    """Returns (exit status, standard output, standard error) of the set-up, which leaves the checkout as it is."""
    environ = environ_of_setup(fresh) | variables
    before = sorted(fresh.rglob("*"))
    done = subprocess.run(
        [fresh / "tandem/launch/setup.sh", *arguments], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert sorted(path for path in fresh.rglob("*") if ".cache" not in path.parts) == before
    return done.returncode, done.stdout, done.stderr


def refusal(fresh, **variables):
    """The only line that the set-up prints where it refuses."""
    status, _, error = setup(fresh, **variables)
    assert (status, error.count("\n")) == (2, 1)
    return error


@pytest.mark.parametrize(
    ("variables", "missing_tool", "message", "remedy"),
    [
        ({"TANDEM_DEVICE": "tpu"}, None, "TANDEM_DEVICE is 'tpu'", "cpu or cuda"),
        ({"TANDEM_DEVICE": "cuda"}, None, "there is no nvcc", "TANDEM_DEVICE=cpu sets up without GPUs"),
        ({"TANDEM_MPICC": "/there/is/none"}, None, "TANDEM_MPICC is '/there/is/none'", "path of mpicc"),
        ({"TANDEM_PYTHON": "/bin/false"}, None, "'/bin/false', which is not Python 3.11 to 3.13", "set it to one of them"),
        ({"XDG_CACHE_HOME": "/etc/hostname/cache"}, None, "cannot write to the cache /etc/hostname/cache", "set XDG_CACHE_HOME"),
        ({}, "g++", "no g++ found", "install it"),
        ({}, PYTHON, "no Python 3.11 to 3.13 found", "install it"),
        *(({name: "7"}, None, "nothing is set up inside an allocation", "; run launch/setup.sh") for name in ALLOCATIONS),
    ],
)
def test_a_wrong_choice_a_missing_tool_and_an_allocation_are_named(fresh, variables, missing_tool, message, remedy):
    if missing_tool:
        (fresh / "bin" / missing_tool).unlink()
    error = refusal(fresh, **variables)
    assert message in error
    assert remedy in error


@pytest.mark.parametrize(
    ("versions", "variables", "chosen"),
    [
        ({"python3.12": "3.12", "python3.13": "3.13"}, {}, "python3.12"),
        ({"python3.13": "", "python3": "3.11"}, {}, "python3"),
        ({"python3.11": "3.11", "site": "3.12"}, {"TANDEM_PYTHON": "site"}, "site"),
        ({"python3.11": "3.11", "conda/bin/python": "3.12"}, {"TANDEM_CONDA": "bin/conda"}, "conda/bin/python"),
        ({"python3.11": "3.11", "conda/bin/python": "3.14"}, {"TANDEM_CONDA": "bin/conda"}, "python3.11"),
    ],
)
def test_the_python_is_that_which_is_named_or_of_conda_or_the_preferred_one(versions, variables, chosen, fresh, monkeypatch):
    (fresh / "bin" / PYTHON).unlink()
    for name, version in versions.items():
        make_script(fresh / "bin" / name, f'[ "$1" = -c ] && echo {version}')
    monkeypatch.chdir(fresh)
    assert f"{chosen} has no venv module" in refusal(fresh, **variables)


@pytest.mark.parametrize("name", ["my tandem", "my:tandem"])
def test_a_checkout_whose_path_compilers_cut_is_refused_before_anything_is_made(name, fresh):
    (fresh / "tandem").rename(fresh / name)
    (fresh / "tandem").symlink_to(name)
    done = subprocess.run([fresh / name / "launch/setup.sh"], env=environ_of_setup(fresh), capture_output=True, text=True, check=False)
    message = f"setup: the checkout's path '{fresh / name}' has a space or a colon, which mpicc and LD_PRELOAD cannot take; move it\n"
    assert (done.returncode, done.stderr) == (2, message)
    assert not (fresh / name / ".venv").exists()


WRITABLE = "give a writable one: launch/setup.sh --download FOLDER"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--check", "extra"), "unexpected argument 'extra'; see launch/setup.sh --help"),
        (("--download", "folder", "extra"), "unexpected argument 'extra'; see launch/setup.sh --help"),
        (("",), "unknown argument ''; see launch/setup.sh --help"),
        (("--light",), "'/bin/false' is not Python 3.10 or newer; set TANDEM_PYTHON to one, or load a module"),
        (("--download", ""), f"cannot write to the folder ''; {WRITABLE}"),
        (("--download", "/etc/hostname/folder"), f"cannot write to the folder '/etc/hostname/folder'; {WRITABLE}"),
    ],
)
def test_a_wrong_argument_sets_nothing_up(arguments, message, fresh):
    assert setup(fresh, *arguments, TANDEM_PYTHON="/bin/false") == (2, "", f"setup: {message}\n")


def test_a_home_is_needed_only_where_something_is_set_up(fresh):
    assert setup(fresh, "--check", HOME="")[:2] == (1, "setup: .venv is missing or stale; run launch/setup.sh\n")
    message = "setup: neither HOME nor XDG_CACHE_HOME is set, and the cache needs a folder; set one of them\n"
    assert refusal(fresh, HOME="") == message


NVCC = """[ "$1" != --version ] || echo "Cuda compilation tools, release {release}, V{release}.88"
[ "$1" != --dryrun ] || echo '#$ TOP={top}/bin/..' >&2
"""


def with_toolkit(folder, nvcc="cuda/bin/nvcc", release="13.0"):
    """A program nvcc, whose CUDA toolkit is in `cuda`."""
    make_script(folder / nvcc, NVCC.format(release=release, top=folder / "cuda"))


def environ_of(folder, cuda_home):
    return {"PATH": str(folder / "bin")} | ({"CUDA_HOME": str(folder / cuda_home)} if cuda_home else {})


@pytest.mark.parametrize(
    ("device", "free_kib", "message"),
    [("cpu", 3 << 20, "only 3 GiB free"), ("cuda", 8 << 20, "only 8 GiB free")],
)
def test_too_little_space_is_named(fresh, device, free_kib, message):
    with_toolkit(fresh, "bin/nvcc")
    make_script(fresh / "bin" / "df", f"echo header; echo disk 100 90 {free_kib} 90% /\n")
    error = refusal(fresh, TANDEM_DEVICE=device)
    assert message in error
    assert f"{6 if device == 'cpu' else 17} GiB are needed" in error


@pytest.mark.parametrize(
    ("toolkit", "cuda_home", "message"),
    [
        ({"nvcc": "bin/nvcc"}, "cuda", "/cuda', which has no nvcc; "),
        ({"nvcc": "bin/nvcc", "release": "12.9"}, None, "bin/nvcc is of CUDA 12.9, and this PyTorch of CUDA 13.0; "),
        ({"release": "14.0"}, "cuda", "bin/nvcc is of CUDA 14.0, and this PyTorch of CUDA 13.0; "),
        ({"release": "none"}, "cuda", "bin/nvcc --version tells no release of CUDA; "),
    ],
)
def test_a_cuda_toolkit_that_cannot_build_horovod_is_named(toolkit, cuda_home, message, tmp_path):
    with_toolkit(tmp_path, **toolkit)
    with pytest.raises(
        build_tools.ToolError, match=re.escape(message) + ".*TANDEM_PYTHON=.* --light.* load a module of CUDA 13.0, or set CUDA_HOME"
    ):
        build_tools.toolkit(environ_of(tmp_path, cuda_home), "13.0")


# The first is a script, and lies elsewhere.
@pytest.mark.parametrize(("nvcc", "cuda_home"), [("bin/nvcc", None), ("cuda/bin/nvcc", "cuda")])
def test_the_toolkit_is_that_of_nvcc_or_of_cuda_home(nvcc, cuda_home, tmp_path):
    with_toolkit(tmp_path, nvcc, "13.1")
    assert build_tools.toolkit(environ_of(tmp_path, cuda_home), "13.0") == tmp_path / "cuda"


def test_an_earlier_choice_holds_until_another_is_made(fresh):
    (fresh / "tandem/.venv").mkdir()
    (fresh / "tandem/.venv/tandem-choices").write_text("TANDEM_MPICC=/gone/mpicc\nTANDEM_PYTHON=\n")
    assert "TANDEM_MPICC is '/gone/mpicc'" in setup(fresh, "--check")[2]
    assert setup(fresh, "--check", TANDEM_MPICC="")[:2] == (1, "setup: .venv is missing or stale; run launch/setup.sh\n")


@pytest.mark.long
def test_what_is_put_beside_a_sites_python_is_enough_for_a_matrix(tmp_path):
    checkout, python = copied(tmp_path), tmp_path / "site/bin/python"
    (checkout / ".venv").unlink()
    venv.create(tmp_path / "site", with_pip=True)
    if completed(python, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", tmp_path, "tomli").returncode:
        pytest.skip("no package index")
    done = completed("launch/setup.sh", "--light", cwd=checkout, variables={"TANDEM_PYTHON": str(python)})
    assert done.returncode == 0, done.stderr
    command = ("launch/matrix.sh", "1", "--backends", "single", "--workloads", "cnn", "--dry-run", "--results", tmp_path / "results")
    done = completed(*command, cwd=checkout, variables={"TANDEM_PYTHON": str(python)})
    assert done.returncode == 0, done.stderr
    assert f"{checkout / '.light/bin/python'} -m torch.distributed.run" in done.stdout


# What Horovod reads when it runs, or a module sets, does not make the environment stale.
@pytest.mark.parametrize(
    ("variables", "status"),
    [
        ({"HOROVOD_CYCLE_TIME": "5", "HOROVOD_NCCL_HOME": "/a/module", "PYTHONPATH": "/its"}, 0),
        ({"HOROVOD_CPU_OPERATIONS": "gloo", "HOROVOD_FUSION_THRESHOLD": "1", "HOROVOD_CONTROLLER": "mpi"}, 0),
        ({"HOROVOD_GPU_OPERATIONS": "NCCL"}, 1),
    ],
)
def test_check_knows_what_this_environment_was_built_with(variables, status):
    done = subprocess.run([ROOT / "launch/setup.sh", "--check"], capture_output=True, text=True, env=os.environ | variables, check=False)
    assert done.returncode == status
    assert status or done.stdout == "setup: .venv is up to date\n"


# What wrappers of MPI print to the options that they know.
MPICH_SHOW = '[ "$1" = -show ] && echo "gcc -I/mpich/include -L/mpich/lib -lmpi"'
CRAY = '[ "$1" = --cray-print-opts=libs ] && echo "-L/opt/cray/lib -lmpi_gnu"'


@pytest.mark.parametrize(
    ("wrapper", "of_folder", "variables", "expected"),
    [
        (MPICH_SHOW, None, {}, "cc"),
        (CRAY, MPICH_SHOW, {"CRAY_MPICH_DIR": "mpich"}, "mpich/bin/mpicc"),
        (CRAY, None, {}, "cc is HPE's wrapper, and there is no mpicc in CRAY_MPICH_DIR or MPICH_DIR; run: module load cray-mpich"),
        (CRAY, CRAY, {"MPICH_DIR": "mpich"}, "cc is HPE's wrapper, and there is no mpicc in"),
        ("exit 1", None, {}, "cc -show failed; TANDEM_MPICC must be the mpicc of MPICH"),
    ],
)
def test_the_wrapper_of_a_sites_mpi_is_one_that_shows_how_it_links(wrapper, of_folder, variables, expected, tmp_path):
    make_script(tmp_path / "cc", wrapper)
    if of_folder:
        make_script(tmp_path / "mpich/bin/mpicc", of_folder)
    environ = {name: str(tmp_path / folder) for name, folder in variables.items()}
    if " " in expected:
        with pytest.raises(build_tools.ToolError, match=re.escape(expected)):
            build_tools.site_mpicc(str(tmp_path / "cc"), environ)
    else:
        assert build_tools.site_mpicc(str(tmp_path / "cc"), environ) == str(tmp_path / expected)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("g++", "echo 8.5.0", "setup: g++ is of GCC 8.5.0, and PyTorch's headers need GCC 9"),
        ("cc", "exit 1", "cc -show failed; TANDEM_MPICC must be the mpicc of MPICH"),
    ],
)
def test_compilers_are_checked_before_anything_is_downloaded(name, text, message, fresh):
    make_script(fresh / "bin" / name, text)
    assert message in refusal(fresh, **({"TANDEM_MPICC": "cc"} if name == "cc" else {}))


# It lacks a package, and writes down by which constraints pip would choose it.
FAKE_PYTHON = """case "$*" in
  *venv*) mkdir -p "{light}/bin" "{light}/packages" && cp "$0" "{light}/bin/python" ;;
  *purelib*) echo "{light}/packages" ;;
  *distributions*) echo rich==0 ;;
  *install*) echo "$*" "${{PIP_CONSTRAINT-none}}" >>{log} ;;
esac"""


def test_the_constraints_of_a_container_do_not_bind_what_is_installed_beside_its_python(fresh):
    for tool in ("mkdir", PYTHON):
        (fresh / "bin" / tool).unlink()
    for tool in ("mkdir", "cp"):
        (fresh / "bin" / tool).unlink(missing_ok=True)
        (fresh / "bin" / tool).symlink_to(shutil.which(tool))
    light = fresh / "tandem/.light"
    make_script(fresh / "bin/python3", FAKE_PYTHON.format(light=light, log=fresh / "log"))
    environ = environ_of_setup(fresh) | {
        "PIP_CONSTRAINT": "/etc/pip/constraint.txt",
        "MODULEPATH": "/own",
        "LOADEDMODULES": "gcc/13:openmpi/5",
    }
    command = [fresh / "tandem/launch/setup.sh", "--light"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = (fresh / "log").read_text().splitlines()
    assert line.endswith(f"--target {light}/packages rich==0 none")
    assert (light / "modules").read_text() == "MODULEPATH=/own\nLOADEDMODULES=gcc/13:openmpi/5\n"
