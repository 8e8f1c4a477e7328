#!/bin/bash -p
# Creates .venv with the pinned packages of environment.yml and Horovod; does nothing if it is up to date.
set -euo pipefail
# An exported CDPATH would make cd print a folder.
unset CDPATH

usage() {
  cat <<'TXT'
usage: launch/setup.sh [--check | --light | --download FOLDER]

Creates the environment .venv in this checkout from environment.yml and builds Horovod into it. Can be interrupted and
restarted. Writes only to the checkout and to ${XDG_CACHE_HOME:-~/.cache}/tandem, the cache of the Horovod wheel and of pip.

  --check    check whether the environment is up to date (exit status 1 if not)
  --download FOLDER  no environment: put what the set-up downloads into FOLDER, for a machine without internet, where
             PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER launch/setup.sh then sets up
  --light    no .venv: make the environment .light beside a site's Python with PyTorch, TANDEM_PYTHON (3.10 or newer;
             default: python3), with the 20 MB of packages of environment.yml that it lacks; launch/matrix.sh then runs in it

Environment variables, stored for the next set-up of this checkout (NAME= resets):
  TANDEM_PYTHON   the Python 3.11 to 3.13 to use (default: the active conda environment's, else 3.11, else 3.12, else 3.13)
  TANDEM_MPICC    mpicc of a site's MPI, or HPE's cc (default: the active conda environment's, else mpich of environment.yml)
  TANDEM_DEVICE   cpu or cuda                 (default: cuda if nvidia-smi finds a GPU)
  HOROVOD_WITH…, HOROVOD_GPU…, HOROVOD_NCCL…, HOROVOD_CUDA…: passed to Horovod's build
With TANDEM_DEVICE=cuda, CUDA_HOME names the CUDA toolkit that Horovod is built with (default: that of nvcc). No GPU is needed.
MAKEFLAGS bounds the compilers that run at once (default: -j8, or as many as there are cores).
A conda environment is used if it is active and named tandem.
TXT
}

die() {
  echo "setup: $*" >&2
  exit 2
}

# What a job has to load again, as launch/run/job_scripts.py reads it.
note_modules() {
  local name
  for name in MODULEPATH LOADEDMODULES CONDA_PREFIX VIRTUAL_ENV; do
    [ -z "${!name-}" ] || echo "$name=${!name}"
  done >"$1"
}

say() { printf 'setup: [%4ds] %s\n' "$SECONDS" "$*"; }

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv
# Without both there is none, which counts only where something is set up.
cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
cache=${cache:+$cache/tandem}

only_check=no folder="" pip=(install --no-compile) verb=installing tools=(g++ make flock)
num_arguments=$#
case "${1-}" in --download) num_arguments=$(($# - 1)) ;; esac
[ "$num_arguments" -le 1 ] || die "unexpected argument '${!#}'; see launch/setup.sh --help"
case "${1-nothing}" in
  nothing) ;;
  --check) only_check=yes ;;
  --light) "$root/launch/setup/light.sh"; note_modules "$root/.light/modules"; exit ;;
  --download)
    folder=${2-}
    mkdir -p "$folder" 2>/dev/null && [ -w "$folder" ] || die "cannot write to the folder '$folder'; give a writable one: launch/setup.sh --download FOLDER"
    # What would be installed is collected as wheels, by an environment that lasts as long.
    pip=(wheel --wheel-dir "$folder") verb=downloading tools=(flock) venv=$(mktemp -d)
    trap 'rm -rf "$venv"' EXIT
    ;;
  -h | --help) usage && exit 0 ;;
  *) die "unknown argument ${1@Q}; see launch/setup.sh --help" ;;
esac

stamp=$venv/tandem-stamp

[ "$(uname -s)" = Linux ] || die "Tandem runs on Linux; on $(uname -s) use a Linux machine or virtual machine"

# Choices of an earlier set-up hold until changed: a compute node may have no visible GPU, no conda and no internet, which must not
# make the environment stale.
choices=$venv/tandem-choices
if [ -f "$choices" ]; then
  while IFS='=' read -r name value; do
    [ -n "${!name+given}" ] || declare -x "$name=$value"
  done <"$choices"
fi
[ "${CONDA_DEFAULT_ENV:-}" != tandem ] || TANDEM_CONDA=$CONDA_PREFIX
conda=${TANDEM_CONDA:-}

device=${TANDEM_DEVICE:-$(nvidia-smi -L >/dev/null 2>&1 && echo cuda || echo cpu)}
case "$device" in cpu | cuda) ;; *) die "TANDEM_DEVICE is '$device'; it must be cpu or cuda" ;; esac

mpicc=${TANDEM_MPICC:-}
if [ -n "$mpicc" ]; then
  mpicc=$(command -v "$mpicc") || die "TANDEM_MPICC is '$TANDEM_MPICC', which is not a program; give the path of mpicc"
elif [ -n "$conda" ] && [ -x "$conda/bin/mpicc" ]; then
  mpicc=$conda/bin/mpicc
fi

chosen=$(
  printf '%s\n' "TANDEM_DEVICE=$device" "TANDEM_MPICC=$mpicc" "TANDEM_PYTHON=${TANDEM_PYTHON:-}" "TANDEM_CONDA=$conda"
  env | grep -E '^HOROVOD_(WITH|GPU|NCCL|CUDA)[A-Z_]*=' | sort || true
)
fingerprint=$({
  cat "$root/environment.yml" "$root/launch/setup.sh" "$root"/launch/setup/*.py "$root"/launch/trace/build.py
  cat "$root"/launch/trace/interposer/*
  # Where a library lies matters to the build only, and modules set it.
  echo "$chosen" | grep -vE '^HOROVOD_[A-Z]+_(HOME|INCLUDE|LIB)='
} | sha256sum | cut -d' ' -f1)
up_to_date() { [ -x "$venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$fingerprint" ]; }

if [ "$only_check" = yes ]; then
  up_to_date && echo "setup: .venv is up to date" && exit 0
  echo "setup: .venv is missing or stale; run launch/setup.sh"
  exit 1
fi
up_to_date && exit 0
# The variables of an allocation stand in the rows of the launchers.
while read -r name; do
  [ -z "${!name-}" ] ||
    die ".venv is missing or stale, and nothing is set up inside an allocation; run launch/setup.sh, or with --light, on a login node"
done < <(grep -oE 'allocations=\([^)]*' "$root/launch/launchers/commands.py" | grep -oE '[A-Z_]{2,}')

case "$root" in
  *[[:space:]:]*) [ -n "$folder" ] || die "the checkout's path '$root' has a space or a colon, which mpicc and LD_PRELOAD cannot take; move it" ;;
esac
for tool in "${tools[@]}"; do
  command -v "$tool" >/dev/null || die "no $tool found; install it (Debian: apt install g++ make util-linux) or load a compiler module"
done
# Every pin of environment.yml installs and trains with these. The first is preferred, as that of CI and of the committed records.
versions=(3.11 3.12 3.13)
for python in "${TANDEM_PYTHON:-${conda:+$conda/bin/python}}" "${versions[@]/#/python}" python3; do
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || version=""
  [[ -n $version && " ${versions[*]} " == *" $version "* ]] && break
  [ -z "${TANDEM_PYTHON-}" ] || die "TANDEM_PYTHON is '$TANDEM_PYTHON', which is ${version:+Python $version, }not Python 3.11 to 3.13; set it to one of them"
  version=""
done
[ -n "$version" ] || die "no Python 3.11 to 3.13 found; install it (uv python install 3.11, or conda env create -f environment.yml), or set TANDEM_PYTHON"
"$python" -P -c 'import venv, ensurepip' 2>/dev/null || die "$python has no venv module; install it (Debian: apt install python$version-venv)"
mpi_folder=""
if [ -z "$folder" ]; then
  built_with=$("$python" "$root/launch/setup/build_tools.py" ${mpicc:+--mpicc "$mpicc"}) || exit 2
  { read -r mpicc && read -r mpi_folder; } <<<"$built_with" || true
fi
pinned() { sed -n 's/^ *'"$1"': *"\(.*\)"/\1/p' "$root/environment.yml"; }
cuda_home="" needed_gib=6 needed_files=75000
if [ "$device" = cuda ] && [ -z "$folder" ]; then
  cuda_home=$("$python" "$root/launch/setup/build_tools.py" --cuda "$(pinned TANDEM_CUDA_VERSION)") || exit 2
  [ -d "$venv/lib/python$version/site-packages/nvidia" ] || { needed_gib=17 needed_files=80000; }
fi
[ -n "$cache" ] || die "neither HOME nor XDG_CACHE_HOME is set, and the cache needs a folder; set one of them"
{ mkdir -p "$cache" && [ -w "$cache" ]; } 2>/dev/null || die "cannot write to the cache $cache; set XDG_CACHE_HOME to a writable folder"
[ -w "$root" ] || die "cannot write to the checkout $root; clone it to a writable folder"
free_gib=$(df -Pk "${folder:-$root}" | awk 'NR == 2 {print int($4 / 1048576)}')
[ "$free_gib" -ge "$needed_gib" ] || die "only $free_gib GiB free in ${folder:-$root}; $needed_gib GiB are needed"

exec 9>"$root/.setup.lock"
flock -n 9 || { say "another set-up of this checkout is running; waiting for it" && flock 9; }
up_to_date && exit 0

trap 'echo "setup: interrupted; run it again to continue" >&2; exit 130' INT TERM
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONNOUSERSITE=1 PIP_CACHE_DIR=$cache/pip
unset PYTHONPATH PYTHONHOME

[ -z "$cuda_home" ] ||
  say "for GPUs, with CUDA from $cuda_home: 6 GB are downloaded, .venv has 10 GB, the cache up to 6 GB; 15 to 30 minutes (TANDEM_DEVICE=cpu: 2.5 GB)"
say "up to $needed_files files and $needed_gib GiB go to $root, and packages to $cache (XDG_CACHE_HOME moves that); quotas are not known here"
rm -f "$stamp"
if ! "$venv/bin/python" -P -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$version')" 2>/dev/null; then
  say "creating ${folder:+for a while }${venv##*/} with $("$python" --version) ($python)"
  rm -rf "$venv"
  # A conda environment created from environment.yml already has the pinned packages; only Horovod is added.
  "$python" -P -m venv ${conda:+--system-site-packages} "$venv"
fi

pins=$venv/pins.txt
sed -n 's/^ *- *\([A-Za-z0-9_.-]*==[^ #]*\).*/\1/p' "$root/environment.yml" >"$pins.new"
# For aarch64 there are no wheels of tensorflow-cpu.
[ "$device $(uname -m)" = "cpu x86_64" ] || sed -i 's/^tensorflow-cpu==/tensorflow==/' "$pins.new"
[ -z "$mpicc" ] || sed -i '/^mpich==/d' "$pins.new"
mv "$pins.new" "$pins"
# Uninstall packages of earlier choices: an environment must not have two MPI libraries or two TensorFlows.
for name in mpich tensorflow tensorflow-cpu; do
  grep -q "^$name==" "$pins" || "$venv/bin/python" -P -m pip uninstall --quiet --yes "$name" 2>/dev/null
done
export PIP_CONSTRAINT=$pins

# Under --download it collects wheels instead.
install() {
  local messages
  messages=$("$venv/bin/python" -P -m pip "${pip[@]}" --quiet "$@" 2>&1) && return
  echo "$messages" >&2
  die "pip could not install: $*; see its messages above (without internet see launch/setup/README.md)"
}
cuda_of_torch() { "$venv/bin/python" -P -c 'from torch.version import cuda; print(cuda)' 2>/dev/null || echo none; }
# A build for CPUs satisfies the same pin.
[ "$device" = cpu ] || [ "$(cuda_of_torch)" != None ] || "$venv/bin/python" -P -m pip uninstall --quiet --yes torch
say "$verb PyTorch (1 to 3 minutes; for GPUs 3 to 12)"
# PyTorch is installed first, so that no later resolution replaces it with another build.
install "$(grep '^torch==' "$pins")"
leave_out="leave its CPU wheels out ('pip config list': find-links, extra-index-url)"
[ -z "$cuda_home" ] || [ "$(cuda_of_torch)" = "$(pinned TANDEM_CUDA_VERSION)" ] ||
  die "pip took a PyTorch for CUDA $(cuda_of_torch), not $(pinned TANDEM_CUDA_VERSION); $leave_out"
[ -z "$folder" ] || [ "$device" = cpu ] || ! compgen -G "$folder/torch-*+cpu-*" >/dev/null || die "pip took a PyTorch for CPUs; $leave_out"
say "$verb TensorFlow, MPI and the rest (2 to 5 minutes)"
install -r "$pins"
install --no-deps "tf-keras==$(pinned TANDEM_TF_KERAS_VERSION)"
if [ -n "$folder" ]; then
  # For an mpi4py that is built with a site's MPI.
  install cython
elif [ -n "${TANDEM_MPICC:-}" ]; then
  say "building mpi4py with $mpicc (1 to 3 minutes)"
  MPICC=$mpicc LDFLAGS="${LDFLAGS-}${mpi_folder:+ -Wl,-rpath,$mpi_folder}" \
    install --no-deps --force-reinstall --no-cache-dir --no-binary mpi4py "$(grep '^mpi4py==' "$pins")"
fi
if [ "$device" = cuda ]; then
  say "$verb the CUDA libraries of TensorFlow (1 to 5 minutes)"
  read -ra libraries <<<"$(pinned TANDEM_TENSORFLOW_CUDA)"
  install --no-deps "${libraries[@]}"
fi

if [ -n "$folder" ]; then
  say "downloading the source of Horovod"
  pip=(download --no-deps --dest "$folder")
  install --no-binary horovod "horovod==$(pinned TANDEM_HOROVOD_VERSION)"
  install --no-binary mpi4py "$(grep '^mpi4py==' "$pins")"
  say "done; on the machine without internet: TANDEM_DEVICE=$device PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER launch/setup.sh"
  exit
fi

say "installing Horovod from the cached wheel, or building it (5 to 10 minutes)"
wheel=$("$venv/bin/python" "$root/launch/setup/build_horovod.py" "$(pinned TANDEM_HOROVOD_VERSION)" --cache "$cache" ${mpicc:+--mpicc "$mpicc"} \
  ${cuda_home:+--cuda-home "$cuda_home"}) || exit 2
install --no-deps --force-reinstall "$wheel"

# pip would do it on one core. A few files of libraries are for other versions of Python.
say "compiling the modules of the libraries (up to a minute)"
num_jobs=$(nproc)
"$venv/bin/python" -P -m compileall -q -j "$((num_jobs < 8 ? num_jobs : 8))" "$venv/lib/python$version/site-packages" >/dev/null 2>&1 || true

say "compiling the MPI interposer and the library of --mkl-kernels fast (10 seconds)"
(cd "$root" && "$venv/bin/python" -m launch.trace.build ${mpicc:+--mpicc "$mpicc"} >/dev/null) || die "the MPI interposer was not built; see the messages above"
(cd "$root" && "$venv/bin/python" -m common.ranks.mkl_kernels) || die "the library of --mkl-kernels fast was not built; see the message above"

if [ "$device" = cuda ]; then
  "$venv/bin/horovodrun" --check-build
fi

note_modules "$venv/tandem-modules"
echo "$chosen" >"$choices"
echo "$fingerprint" >"$stamp.new" && mv "$stamp.new" "$stamp"
say "done"
