"""MPI by mpi4py: loaded, and initialized so that a watchdog runs meanwhile."""

import ctypes
import sys
from types import ModuleType


def loaded() -> ModuleType:
    """Returns mpi4py's MPI, which its import has not initialized."""
    import mpi4py

    if "mpi4py.MPI" not in sys.modules:
        mpi4py.rc.initialize = False
    from mpi4py import MPI

    return MPI


def initialized() -> ModuleType:
    """Returns mpi4py's MPI, which is initialized here where nobody has.

    mpi4py would hold the interpreter's lock until the last rank has come, and no watchdog would run meanwhile.
    """
    mpi = loaded()
    if not mpi.Is_initialized():
        # A preloaded library that counts calls comes before MPI's own.
        libraries = (ctypes.CDLL(None), ctypes.CDLL(mpi.__file__))
        library = next(library for library in libraries if hasattr(library, "MPI_Init_thread"))
        library.MPI_Init_thread(None, None, mpi.THREAD_MULTIPLE, ctypes.byref(ctypes.c_int()))
        # As mpi4py does, so that errors become exceptions.
        for communicator in (mpi.COMM_WORLD, mpi.COMM_SELF):
            communicator.Set_errhandler(mpi.ERRORS_RETURN)
    return mpi


def problem() -> str | None:
    """Returns why mpi4py cannot be used; None if it can."""
    try:
        loaded()
    except (ImportError, RuntimeError) as error:
        return str(error)
    return None
