"""Python runs this file at its start, before the script: the probe is installed once the script has imported PyTorch.

PYTHONPATH names the folder of this file. Another sitecustomize that the environment has is run as well.
"""

import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))


class _AfterTorch:
    """Finds torch as the other finders do, and installs the probe after its import."""

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def execute_and_install(module: ModuleType) -> None:
                execute(module)
                probe = _load("_tandem_audit_probe", os.path.join(os.path.dirname(_HERE), "probe.py"))
                probe.install(os.environ["TANDEM_AUDIT_FOLDER"], int(os.environ["TANDEM_AUDIT_STEPS"]))

            spec.loader.exec_module = execute_and_install
        return spec


def _load(name: str, path: str) -> ModuleType:
    """The module of a file whose folder is no place of modules."""
    loader = importlib.machinery.SourceFileLoader(name, path)
    module = sys.modules[name] = ModuleType(name)
    module.__file__ = path
    loader.exec_module(module)
    return module


if "TANDEM_AUDIT_FOLDER" in os.environ:
    sys.meta_path.insert(0, _AfterTorch())
_places = [place for place in sys.path if os.path.abspath(place or ".") != _HERE]
_other = importlib.machinery.PathFinder.find_spec("sitecustomize", _places)
if _other and _other.origin:
    _load("sitecustomize", _other.origin)
