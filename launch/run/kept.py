"""Keeps on a node, for the matrices of the next hour, what takes seconds to find out there.

A result has a file of its own for all that it depends on: the boot of the node, its packages, the variables that libraries read, and the
code that finds it out.
"""

import contextlib
import hashlib
import json
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from common import cache
from common.record import environment

MAX_AGE = timedelta(hours=1)
BOOT = Path("/proc/sys/kernel/random/boot_id")


def file_for(kind: str, code: Iterable[Path], variables: Mapping[str, str], *others: Any) -> Path | None:
    """Names the file for a result of this kind on this node; None where nothing can be kept.

    `variables` are those of the process that finds it out, and `others` what else the result depends on, as JSON can write it.
    """
    folder = cache.folder()
    if not folder or not BOOT.exists():
        return None
    node = vars(environment.describe(of_record=False)) | {"variables": environment.recorded(variables)}
    parts = (BOOT.read_text(), str(Path(sys.prefix).resolve()), node, [path.read_text() for path in code], others)
    digest = hashlib.sha256(json.dumps(parts, default=vars, sort_keys=True).encode()).hexdigest()
    return folder / kind / f"{digest[:16]}.json"


def read(file: Path | None) -> Any:
    """Reads the result of a file; returns None where it is missing, unreadable or older than an hour."""
    with contextlib.suppress(OSError, ValueError):
        if file and 0 <= time.time() - file.stat().st_mtime <= MAX_AGE.total_seconds():
            return json.loads(cache.read(file) or "null")
    return None


def write(file: Path | None, result: Any) -> None:
    """Writes a result into its file and removes old files beside it, where that can be done: whoever cannot keep it finds it out again."""
    if file and result:
        cache.write(file, json.dumps(result))
        with contextlib.suppress(OSError):
            for kept in file.parent.glob("*.json"):
                if time.time() - kept.stat().st_mtime > MAX_AGE.total_seconds():
                    kept.unlink(missing_ok=True)
