#!/bin/bash -p
# Makes .light, an environment beside a site's Python with what that lacks of Tandem's small packages; launch/setup.sh --light runs it.
set -euo pipefail
# An exported CDPATH would make cd print a folder.
unset CDPATH
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
light=$root/.light
python=${TANDEM_PYTHON:-python3}

die() {
  echo "setup: $*" >&2
  exit 2
}

# Runs a module without those of the current folder.
run() { "$1" "$root/launch/run_module.py" "${@:2}"; }

"$python" -c 'import sys; assert sys.version_info >= (3, 10)' 2>/dev/null ||
  die "'$python' is not Python 3.10 or newer; set TANDEM_PYTHON to one, or load a module"
run "$python" pip --version >/dev/null 2>&1 || die "$python has no pip; set TANDEM_PYTHON to a Python that has it"
run "$python" venv --clear --without-pip "$light" || die "$python could not make an environment; set TANDEM_PYTHON to one that has venv"
packages=$("$light/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# What this Python has stays in sight, also where it is of an environment itself, which --system-site-packages would pass over.
"$python" -c 'import site; print(*(f"import site; site.addsitedir({folder!r})" for folder in site.getsitepackages()), sep="\n")' >"$packages/site.pth"

export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1
# NVIDIA's containers pin their own packages by it, and nothing of theirs is replaced here.
unset PIP_CONSTRAINT PIP_BUILD_CONSTRAINT
lacking() {
  "$light/bin/python" -c 'import sys
from importlib import metadata
names = {distribution.metadata["Name"].lower().replace("_", "-") for distribution in metadata.distributions()}
print(*(pin for pin in sys.argv[1:] if pin.split("==")[0] not in names))' "$@"
}
read -ra further < <(sed -n 's/^ *TANDEM_LIGHT: *"\(.*\)"/\1/p' "$root/environment.yml")
mapfile -t pins < <(sed -nE 's/^ *- *((rich|psutil|safetensors|ijson|nvidia-ml-py|pydantic|numpy|scipy)==[^ ]*).*/\1/p' "$root/environment.yml")
read -ra needs < <(lacking "${pins[@]}" "${further[@]}")
[ ${#needs[@]} -eq 0 ] || run "$python" pip install --quiet --only-binary=:all: --no-deps --target "$packages" "${needs[@]}" ||
  die "pip could not install: ${needs[*]}; see its messages above"
