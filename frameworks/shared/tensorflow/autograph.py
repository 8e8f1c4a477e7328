"""The files of TensorFlow's AutoGraph."""

import sys
from pathlib import Path


def remove_generated_files() -> None:
    """Removes the code that AutoGraph wrote into the temporary folder, as it would itself when the interpreter is finalized."""
    for name, module in list(sys.modules.items()):
        if name.startswith("__autograph_generated_file") and module.__file__:
            Path(module.__file__).unlink(missing_ok=True)
