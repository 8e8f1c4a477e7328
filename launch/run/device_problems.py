"""Imports backends and asks each on which devices it can train: python -m launch.run.device_problems BACKEND… prints the answers as JSON.

launch/run/available.py runs this in a process of its own, which a library may end when it is imported.
"""

import importlib
import json
import sys
import traceback

from launch.run.answers import DEVICES, Answer


def answer_of(name: str) -> Answer:
    """Returns the answer of the backend in frameworks/NAME.py."""
    try:
        trainer_class = importlib.import_module(f"frameworks.{name}").Trainer
        cpu, cuda = map(trainer_class.device_problem, DEVICES)
        mkl_kernels = trainer_class.mkl_kernels_problem()
    except Exception:
        return {"error": traceback.format_exc().splitlines()[-1]}
    return {"cpu": cpu, "cuda": cuda, "mkl_kernels": mkl_kernels}


if __name__ == "__main__":
    print(json.dumps({name: answer_of(name) for name in sys.argv[1:]}))
