#!/usr/bin/env bash
# Sets Tandem up where that is needed, then runs the matrix; see launch/matrix.sh --help.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
light=$root/.light/python
starts_nothing=no
case " $* " in *" --dry-run "* | *" --help "* | *" -h "*) starts_nothing=yes ;; esac
if [ -e "$root/.venv" ] || { [ ! -f "$light" ] && [ $starts_nothing = no ]; }; then
  "$root/launch/setup.sh"
  python=$root/.venv/bin/python
  # What a module has put there would go before the environment's packages.
  export PYTHONPATH=$root
else
  [ -d "$root/.light" ] || "$root/launch/setup/light.sh"
  python=${TANDEM_PYTHON:-$(cat "$light" 2>/dev/null || echo python3)}
  export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
fi
exec "$python" -m launch.matrix "$@"
