#!/usr/bin/env bash
# Makes .venv with the pins of environment.yml and Horovod in it; does nothing when that is up to date.
set -euo pipefail

usage() {
  cat <<'TXT'
usage: launch/setup.sh [--check]

Makes the environment .venv in this checkout from environment.yml and builds Horovod into it. Safe to interrupt and to
start again; changes nothing outside the checkout and ${XDG_CACHE_HOME:-~/.cache}/tandem, where the built wheel and what pip
downloads are kept.

  --check    only say whether the environment is up to date (exit status 1 if not)

Environment, remembered from one set-up of a checkout to the next (NAME= forgets):
  TANDEM_PYTHON   the Python 3.11 to use      (default: the active conda environment's, python3.11, python3)
  TANDEM_MPICC    a site's own MPI, by mpicc  (default: the active conda environment's, else the mpich of environment.yml)
  TANDEM_DEVICE   cpu or cuda: which TensorFlow to install (default: cuda where nvidia-smi finds a GPU)
  HOROVOD_WITH…, HOROVOD_GPU…, HOROVOD_NCCL…, HOROVOD_CUDA…, HOROVOD_CPU…: given to Horovod's build
The active conda environment counts if its name is tandem.
TXT
}

die() {
  echo "setup: $*" >&2
  exit 2
}

say() { printf 'setup: [%4ds] %s\n' "$SECONDS" "$*"; }

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv
stamp=$venv/tandem-stamp
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tandem

only_check=no
case "${1-}" in
  "") ;;
  --check) only_check=yes ;;
  -h | --help) usage && exit 0 ;;
  *) die "unknown argument '$1'; see launch/setup.sh --help" ;;
esac

# What an earlier set-up was told or found holds until something else is said: a compute node may have no GPU in sight, no
# conda and no internet, and must not find the environment stale for that.
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
  mpicc=$(command -v "$mpicc") || die "TANDEM_MPICC is '$TANDEM_MPICC', which is no program; give the path of mpicc"
elif [ -n "$conda" ] && [ -x "$conda/bin/mpicc" ]; then
  mpicc=$conda/bin/mpicc
fi

chosen=$(
  printf '%s\n' "TANDEM_DEVICE=$device" "TANDEM_MPICC=$mpicc" "TANDEM_PYTHON=${TANDEM_PYTHON:-}" "TANDEM_CONDA=$conda"
  env | grep -E '^HOROVOD_(WITH|GPU|NCCL|CUDA|CPU)[A-Z_]*=' | sort || true
)
wanted=$({
  cat "$root/environment.yml" "$root/launch/setup.sh" "$root/launch/build_horovod.py" "$root"/launch/trace/{build,generate,loads,prototypes}.py
  cat "$root"/launch/trace/interposer/*
  echo "$chosen"
} | sha256sum | cut -d' ' -f1)
up_to_date() { [ -x "$venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; }

if [ "$only_check" = yes ]; then
  up_to_date && echo "setup: .venv is up to date" && exit 0
  echo "setup: .venv is missing or stale; run launch/setup.sh"
  exit 1
fi
up_to_date && exit 0

[ "$(uname -s)" = Linux ] || die "Tandem runs on Linux; on $(uname -s) use a Linux machine or virtual machine"
for tool in g++ make flock; do
  command -v $tool >/dev/null || die "no $tool found; install it (Debian: apt install g++ make util-linux) or load a compiler module"
done
python=${TANDEM_PYTHON:-}
for candidate in "${conda:+$conda/bin/python}" python3.11 python3; do
  [ -n "$python" ] && break
  [ -n "$candidate" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null && python=$candidate
done
[ -n "$python" ] || die "no Python 3.11 found; install it or name it in TANDEM_PYTHON"
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null ||
  die "TANDEM_PYTHON is '$python', which is not Python 3.11; name a Python 3.11"
"$python" -c 'import venv, ensurepip' 2>/dev/null || die "$python has no venv module; install it (Debian: apt install python3.11-venv)"
{ mkdir -p "$cache" && [ -w "$cache" ]; } 2>/dev/null || die "cannot write to the cache $cache; set XDG_CACHE_HOME to a folder that can be written"
[ -w "$root" ] || die "cannot write to the checkout $root; clone it to a folder that can be written"
free_gib=$(df -Pk "$root" | awk 'NR == 2 {print int($4 / 1048576)}')
[ "$free_gib" -ge 6 ] || die "only $free_gib GiB free under $root; 6 GiB are needed"

exec 9>"$root/.setup.lock"
flock -n 9 || { say "another set-up of this checkout is running; waiting for it" && flock 9; }
up_to_date && exit 0

trap 'echo "setup: interrupted; start it again and it goes on" >&2; exit 130' INT TERM
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONNOUSERSITE=1 PIP_CACHE_DIR=$cache/pip
unset PYTHONPATH PYTHONHOME

rm -f "$stamp"
if ! "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
  say "making .venv with $("$python" --version) ($python)"
  rm -rf "$venv"
  # In a conda environment made from environment.yml the pins are there already; only Horovod is added.
  "$python" -m venv ${conda:+--system-site-packages} "$venv"
fi

pins=$venv/pins.txt
sed -n 's/^ *- *\([A-Za-z0-9_.-]*==[^ #]*\).*/\1/p' "$root/environment.yml" >"$pins.new"
[ "$device" = cpu ] || sed -i 's/^tensorflow-cpu==/tensorflow==/' "$pins.new"
[ -z "$mpicc" ] || sed -i '/^mpich==/d' "$pins.new"
mv "$pins.new" "$pins"
# What an earlier choice has installed goes: two MPI libraries, or two TensorFlows, in one environment are one too many.
for name in mpich tensorflow tensorflow-cpu; do
  grep -q "^$name==" "$pins" || "$venv/bin/python" -m pip uninstall --quiet --yes "$name" 2>/dev/null
done
export PIP_CONSTRAINT=$pins

install() { "$venv/bin/python" -m pip install --quiet "$@" || die "pip could not install: $*; its messages above say why (no network? see README, Without internet)"; }
say "installing PyTorch (1 to 3 minutes)"
# PyTorch first and alone: pinned by then, no later resolution can replace it with another build.
install "$(grep '^torch==' "$pins")"
say "installing TensorFlow, MPI and the rest (2 to 5 minutes)"
install -r "$pins"
pinned() { sed -n 's/^ *'"$1"': *"\(.*\)"/\1/p' "$root/environment.yml"; }
install --no-deps "tf-keras==$(pinned TANDEM_TF_KERAS_VERSION)" "mlperf-logging==$(pinned TANDEM_MLPERF_LOGGING_VERSION)"

say "Horovod: taking the cached wheel, or building it (5 to 10 minutes)"
wheel=$("$venv/bin/python" "$root/launch/build_horovod.py" "$(pinned TANDEM_HOROVOD_VERSION)" --cache "$cache" ${mpicc:+--mpicc "$mpicc"}) ||
  die "Horovod was not built; the messages above say why"
install --no-deps --force-reinstall "$wheel"

say "compiling the MPI interposer (10 seconds)"
(cd "$root" && "$venv/bin/python" -m launch.trace.build ${mpicc:+--mpicc "$mpicc"} >/dev/null) || die "the MPI interposer was not built; the messages above say why"

echo "$chosen" >"$choices"
echo "$wanted" >"$stamp.new" && mv "$stamp.new" "$stamp"
say "done"
