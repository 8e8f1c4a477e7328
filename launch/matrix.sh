#!/usr/bin/env bash
# Sets Tandem up where that is needed, then runs the matrix; see launch/matrix.sh --help.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
light=$root/.light/python
starts_nothing=no
case " $* " in *" --dry-run "* | *" --print-jobs"* | *" --help "* | *" -h "*) starts_nothing=yes ;; esac
if [ -e "$root/.venv" ] || { [ ! -f "$light" ] && [ $starts_nothing = no ]; }; then
  # What is printed may be a script.
  "$root/launch/setup.sh" >&2
  python=$root/.venv/bin/python
  # What a module has put there would go before the environment's packages.
  export PYTHONPATH=$root
else
  python=${TANDEM_PYTHON:-$(cat "$light" 2>/dev/null || echo python3)}
  export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
  is_ready() { "$python" -c 'import common, importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, ("numpy", "tyro"))))' 2>/dev/null; }
  is_ready || [ -f "$light" ] || "$root/launch/setup/light.sh"
  is_ready || {
    echo "error: $python does not start, is older than Python 3.10 or lacks numpy; run TANDEM_PYTHON=$python launch/setup.sh --light" >&2
    exit 2
  }
fi
exec "$python" -m launch.matrix "$@"
