"""What every run shares. A package that a site's Python lacks is taken from the folder of launch/setup.sh --light."""

import sys
from pathlib import Path

if sys.version_info < (3, 10):  # noqa: UP036
    sys.exit(f"error: Tandem needs Python 3.10 or newer; {sys.executable} is Python {sys.version.split()[0]}")
_LIGHT = Path(__file__).resolve().parent.parent / ".light"
# Behind everything that this Python has, and what was compiled only for this version of Python.
sys.path += [str(_LIGHT), str(_LIGHT / sys.implementation.cache_tag)]
