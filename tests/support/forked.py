"""Programs of this project run in a fork of the tests' process, which has their imports already: a start takes milliseconds."""

import importlib
import os
import runpy
import signal
import sys
import tempfile
import traceback
from pathlib import Path

from tests.support.running import ROOT, environ


def run_module(module, *arguments, folder=ROOT, seconds=0, **variables):
    """Returns (exit status, standard output, standard error) of `python -m module` with these arguments and variables, started in a folder.

    After so many seconds, unless they are 0, SIGALRM ends it.

    For programs that end before they start a thread or a library's runtime: a fork has neither. One start of each program is to be
    tested for real as well, since what the tests have imported is imported here.
    """
    importlib.import_module(module)
    with tempfile.TemporaryDirectory() as outputs:
        paths = [Path(outputs, name) for name in ("out", "err")]
        pid = os.fork()
        if not pid:
            signal.alarm(seconds)
            os.chdir(folder)
            _run(module, [str(argument) for argument in arguments], variables, paths)
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status), *(path.read_text() for path in paths)


def _run(module, arguments, variables, paths):
    """Becomes the program; never returns."""
    status = 1
    try:
        for descriptor, path in enumerate(paths, 1):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
        sys.stdout, sys.stderr = (os.fdopen(os.dup(descriptor), "w", buffering=1) for descriptor in (1, 2))
        cleared = environ() | variables
        os.environ.clear()
        os.environ.update(cleared)
        sys.argv = [module, *arguments]
        # Else runpy would warn that it is imported already.
        del sys.modules[module]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
