#!/bin/bash -p
# Sets Tandem up where that is needed, then runs the matrix; see launch/matrix.sh --help.
set -euo pipefail
# An exported CDPATH would make cd print a folder.
unset CDPATH
[ "$PWD" -ef . ] || { echo "error: the current folder has been deleted; change to another one" >&2; exit 2; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
light=$root/.light/bin/python
starts_nothing=no only_check=no
case " $* " in *" --check "*) only_check=yes ;; esac
case " $* " in *" --check "* | *" --dry-run "* | *" --print-jobs"* | *" --help "* | *" -h "*) starts_nothing=yes ;; esac
is_ready() {
  # The first place of modules is the current folder.
  "$python" -c 'import sys; sys.path[:] = filter(None, sys.path); import importlib.util; assert sys.version_info >= (3, 10)
sys.exit(not all(map(importlib.util.find_spec, ("numpy", "rich", "psutil", "pydantic"))))' 2>/dev/null
}
if [ -e "$root/.venv" ] || { [ ! -x "$light" ] && [ $starts_nothing = no ]; }; then
  # What is printed may be a script.
  [ $only_check = yes ] || "$root/launch/setup.sh" >&2
  python=$root/.venv/bin/python
  # What a module has put there would go before the environment's packages.
  export PYTHONPATH=$root
else
  # An empty part, as of PYTHONPATH=$PYTHONPATH:/x, would be the current folder.
  site=$(tr -s : <<<":${PYTHONPATH-}")
  export PYTHONPATH=$root${site%:}
  python=${TANDEM_PYTHON:-python3}
  # It may be of a container that does not run here.
  if "$light" -c "" 2>/dev/null; then
    python=$light
  elif [ -e "$root/.light" ]; then
    echo "note: $light does not start here, and the matrix runs in $python; load the modules with which it was made" >&2
  fi
  is_ready || [ $only_check = yes ] || [ -x "$light" ] || { "$root/launch/setup.sh" --light && python=$light; }
  is_ready || [ $only_check = yes ] || {
    echo "error: $python does not start, is older than Python 3.10 or lacks numpy; run TANDEM_PYTHON=$python launch/setup.sh --light" >&2
    exit 2
  }
fi
[ $only_check = no ] || is_ready || {
  echo "problem environment  there is none that starts; run launch/setup.sh, or TANDEM_PYTHON=$python launch/setup.sh --light, on a login node"
  exit 1
}
exec "$python" "$root/launch/run_module.py" launch.matrix "$@"
