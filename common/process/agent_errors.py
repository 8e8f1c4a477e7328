"""Errors that the workers of a node under torchrun leave for each other, in the files from which their agent reports them."""

import contextlib
import json
import os
import time
from pathlib import Path

# Set by torchrun to the path of this worker, NUMBER/error.json in a folder of all workers of the node.
VARIABLE = "TORCHELASTIC_ERROR_FILE"


def write(error: str) -> None:
    """Writes the error of this worker for its agent and the other workers; no effect without an agent."""
    if path := os.environ.get(VARIABLE):
        with contextlib.suppress(OSError):
            message = {"message": error, "extraInfo": {"timestamp": str(int(time.time()))}}
            Path(path).write_text(json.dumps({"message": message}))


def read() -> str | None:
    """Reads the first error that a worker of this node has written; None where there is none."""
    if not (path := os.environ.get(VARIABLE)):
        return None
    paths = sorted(Path(path).parents[1].glob("*/error.json"), key=lambda path: path.stat().st_mtime)
    for path in paths:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return json.loads(path.read_text())["message"]["message"]
    return None
