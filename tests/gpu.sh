#!/usr/bin/env bash
# Everything that a machine with a GPU can show, in under ten minutes: tests/gpu.sh [FOLDER] [--device cpu] [--minutes 9.5] [--backends ddp]
# and the arguments of pytest, such as -k "agreement and transformer". The folder gets summary.txt, records, what the runs printed, and traces.
# Exit status 1 where a check failed.
# It runs with the Python that is there: $PYTHON, or python3, with PyTorch. Wheels in the folder $TANDEM_WHEELS are put beside it.
set -euo pipefail
# An exported CDPATH would make cd print a folder.
unset CDPATH
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-python3}
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
if [ -n "${TANDEM_WHEELS:-}" ]; then
  site=$(mktemp -d)
  trap 'rm -rf "$site"' EXIT
  "$python" -m pip install --quiet --no-index --no-deps --find-links "$TANDEM_WHEELS" --target "$site" "$TANDEM_WHEELS"/*.whl
  export PYTHONPATH="$site:$PYTHONPATH"
fi
needed=(torch numpy psutil pytest hypothesis pluggy iniconfig packaging pygments ijson safetensors pynvml)
missing=$("$python" -P -c 'import importlib.util, sys; print(*(n for n in sys.argv[1:] if not importlib.util.find_spec(n)))' "${needed[@]}")
if [ -n "$missing" ]; then
  echo "error: $python lacks $missing; name another Python with PYTHON, or with TANDEM_WHEELS a folder with their wheels" >&2
  exit 2
fi
folder=$root/results/gpu-$(hostname)-$(date +%Y%m%d-%H%M%S)
if [[ -n ${1:-} && $1 != -* ]]; then
  folder=$1
  shift
fi
mkdir -p "$folder"
# -P: not the modules of the folder where this is typed.
"$python" -P -m pytest -p tests.gpu.plugin --folder "$folder" "$root"/tests/gpu/{agreement,breakdown,memory,profile}.py \
  -p no:cacheprovider -o addopts= -o console_output_style=classic -v -rs --tb=short "$@" | tee "$folder/summary.txt"
