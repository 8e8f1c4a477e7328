#!/usr/bin/env bash
# Sets Tandem up where that is needed, then runs the tests; arguments go to pytest, as in: tests/run.sh -m "not matrix"
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
"$root/launch/setup.sh"
cd "$root"
exec .venv/bin/python -m pytest "$@"
