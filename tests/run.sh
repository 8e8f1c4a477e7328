#!/usr/bin/env bash
# Sets Tandem up where that is needed, then runs the tests; arguments go to pytest, as in: tests/run.sh -m "not matrix"
set -euo pipefail
# An exported CDPATH would make cd print a folder.
unset CDPATH
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
"$root/launch/setup.sh"
cd "$root"
# Whatever the environment says: the tests start Python hundreds of times.
unset PYTHONDONTWRITEBYTECODE
# Two processes, which take the tests in the order of tests/conftest.py, have the cores. With threads besides, most of the time one would
# wait for another.
export OMP_NUM_THREADS=1
exec .venv/bin/python -m pytest --numprocesses 2 --dist loadgroup --no-loadscope-reorder "$@"
