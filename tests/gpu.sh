#!/usr/bin/env bash
# Everything that a machine with a GPU can show, in under ten minutes: tests/gpu.sh [FOLDER] [options]; see tests/gpu.sh --help.
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
# -P: not the modules of the folder where this is typed.
"$python" -P -m tests.gpu "$@"
