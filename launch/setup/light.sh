#!/usr/bin/env bash
# Puts what a site's Python with PyTorch lacks of Tandem's small needs into .light, without a compiler; launch/setup.sh --light runs it.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
light=$root/.light
python=${TANDEM_PYTHON:-python3}

die() {
  echo "setup: $*" >&2
  exit 2
}

# Without the modules of the current folder.
pip() { "$python" "$root/launch/run_module.py" pip "$@"; }

tag=$("$python" -c 'import sys; assert sys.version_info >= (3, 10); print(sys.implementation.cache_tag)' 2>/dev/null) ||
  die "'$python' is not Python 3.10 or newer; set TANDEM_PYTHON to one, or load a module"
pip --version >/dev/null 2>&1 || die "$python has no pip; set TANDEM_PYTHON to a Python that has it"

export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1
# NVIDIA's containers pin their own packages by it, and nothing of theirs is replaced here.
unset PIP_CONSTRAINT PIP_BUILD_CONSTRAINT
install() {
  pip install --quiet --upgrade --only-binary=:all: --target "$@" || die "pip could not install: ${*:2}; see its messages above"
}
pinned() { sed -nE "s/^ *- *(($1)==[^ ]*).*/\1/p" "$root/environment.yml"; }
mapfile -t needs < <(pinned 'tyro|rich|psutil|safetensors|ijson|nvidia-ml-py')
read -ra further < <(sed -n 's/^ *TANDEM_LIGHT: *"\(.*\)"/\1/p' "$root/environment.yml")
install "$light" --no-deps "${needs[@]}" "${further[@]}"
# Compiled for one version of Python.
install "$light/$tag" "$(pinned pydantic)"
# numpy is that too, large, and beside PyTorch almost everywhere.
"$python" -c 'import sys; sys.path[:] = filter(None, sys.path); import numpy' 2>/dev/null || install "$light/$tag" numpy
