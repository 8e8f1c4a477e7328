"""Runs a module as `python -m` does, with this checkout first among the places of modules and without the current folder.

python launch/run_module.py MODULE ARGUMENT…: what lies in the folder of a user, such as a tyro.py or random.py, is not run by our programs.
From Python 3.11 on -P alone would leave the folder out; a site's Python may be older.
"""

import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
# Python has put the folder of this file there, whose names are ours and those of its own modules.
if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]
sys.path.insert(0, os.path.dirname(FOLDER))

import runpy  # noqa: E402

if __name__ == "__main__":
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
