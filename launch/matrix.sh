#!/usr/bin/env bash
# Sets Tandem up where that is needed, then runs the matrix; see launch/matrix.sh --help.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
"$root/launch/setup.sh"
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$root/.venv/bin/python" -m launch.matrix "$@"
