"""A slow file system for a lesson: a preloaded library (throttle.c) limits what each process reads below a folder."""

import contextlib
import os
import subprocess
import tempfile
from pathlib import Path

from common.errors import UserError

SOURCE = Path(__file__).with_suffix(".c")


@contextlib.contextmanager
def throttled(folder, bytes_per_second, operations_per_second):
    """A context in which the processes that are started read files below the folder at these rates at most, each; None: no limit.

    Raises UserError without a C compiler.
    """
    if bytes_per_second is None and operations_per_second is None:
        yield
        return
    environ_before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="tandem-throttle-") as build_folder:
        libraries = [str(built(Path(build_folder))), *filter(None, [environ_before.get("LD_PRELOAD")])]
        os.environ |= {
            "LD_PRELOAD": ":".join(libraries),
            "TANDEM_THROTTLE_FOLDER": os.path.realpath(folder),
            "TANDEM_THROTTLE_BYTES": str(bytes_per_second or 0),
            "TANDEM_THROTTLE_OPERATIONS": str(operations_per_second or 0),
        }
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(environ_before)


def built(folder):
    """The path of the library, compiled into a folder. Raises UserError where that fails."""
    library, compiler = folder / "libtandemthrottle.so", os.environ.get("CC", "cc")
    command = [compiler, "-std=gnu11", "-O2", "-fPIC", "-shared", "-pthread", "-o", str(library), str(SOURCE)]
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise UserError(f"--read-rate and --read-operations need a C compiler, and {compiler} is none ({error.strerror}); set CC") from None
    if process.returncode:
        raise UserError(f"{SOURCE.name} could not be compiled: {' '.join(process.stderr.split())}")
    return library
