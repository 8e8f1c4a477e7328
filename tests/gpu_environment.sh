#!/usr/bin/env bash
# Builds the environment for GPUs from a fresh clone of this commit, as a login node would: with nvcc, with or without a GPU.
# tests/gpu_environment.sh [FOLDER]: 17 GiB, 6 GB of downloads, about an hour on two cores. Prints times, sizes and the set-up's checks.
set -euo pipefail
# An exported CDPATH would make cd print a folder.
unset CDPATH
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=${1:-$(mktemp -d)}
git clone --quiet "$root" "$folder/tandem"
cd "$folder/tandem"
# What this machine's pip would otherwise take is PyTorch for CPUs.
export TANDEM_DEVICE=cuda XDG_CACHE_HOME="$folder/cache" PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS="" PIP_EXTRA_INDEX_URL=""
launch/setup.sh
launch/setup.sh --check
du -sh .venv "$XDG_CACHE_HOME"
launch/matrix.sh 1 2 --epochs 1 --results "$folder/results"
if ! nvidia-smi -L >/dev/null 2>&1; then
  status=0
  refusal=$(launch/matrix.sh 1 --device cuda --results "$folder/results" 2>&1) || status=$?
  echo "$refusal"
  [[ $status = 2 && $refusal == *"no backend can use a GPU"* ]]
fi
tests/run.sh -m "not matrix"
