#!/bin/bash -p
# find_python.sh [CONDA ENVIRONMENT]: prints the Python that launch/setup.sh makes .venv with, and its version. Exit status 2 and the reason
# if there is none.
set -euo pipefail
# Every pin of environment.yml installs and trains with these. The first is preferred, as that of CI and of the committed records.
versions=(3.11 3.12 3.13)
conda=${1-}

# take PYTHON VERSION…: prints the Python and ends if it is of one of the versions.
take() {
  version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || version=""
  [ -n "$version" ] && [[ " ${*:2} " == *" $version "* ]] || return 0
  printf '%s\n' "$1" "$version"
  exit
}

die() {
  echo "setup: $*" >&2
  exit 2
}

accepted="Python ${versions[0]} to ${versions[-1]}"
if [ -n "${TANDEM_PYTHON-}" ]; then
  take "$TANDEM_PYTHON" "${versions[@]}"
  die "TANDEM_PYTHON is '$TANDEM_PYTHON', which is ${version:+Python $version, }not $accepted; set it to one of them"
fi
[ -z "$conda" ] || take "$conda/bin/python" "${versions[@]}"
for preferred in "${versions[@]}"; do
  take "python$preferred" "$preferred"
  take python3 "$preferred"
done
ways="uv python install ${versions[0]}, micromamba create -n py311 python=${versions[0]}, or conda env create -f environment.yml"
die "no $accepted found; install it ($ways), or set TANDEM_PYTHON"
