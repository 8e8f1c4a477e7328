"""What the libraries of backends find on the node where this runs: python -m launch.probe PRECISION BACKEND… prints one line of JSON.

launch/run/available.py starts it where the ranks will run. Each backend is imported in a process of its own, side by side.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from common.backends import ROOT
from common.process import gpus
from launch.run.available import MARKER

PROGRAM = """
import json
from frameworks.{} import Trainer
print(json.dumps({{device: Trainer.device_problem(device) for device in ("cpu", "cuda")}}))
"""


def main(precision, *names):
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        answers = dict(zip(names, pool.map(ask, names), strict=True))
    of_precision = {device: gpus.precision_problem(precision, device) for device in ("cpu", "cuda")}
    print(MARKER + json.dumps({name: answer | {"precision": of_precision} for name, answer in answers.items()}), flush=True)


def ask(name):
    """{"cpu": why the backend cannot train on a CPU here, "cuda": on a GPU}, None where it can; {"error": why} if it cannot be imported."""
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(name)], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"its import ended with exit status {done.returncode}"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main(*sys.argv[1:])
