import gc
import os
import sys

from common.ranks import binding, ending, mkl_kernels

binding.remove_owned_variables()
mkl_kernels.load(sys.argv)
# Keras would read settings from the home folder or write them there; where there is none, into a folder ~ of the current one.
os.environ["KERAS_HOME"] = os.devnull
if any(argument.startswith(f"{__name__}.") for argument in sys.orig_argv):
    # The others would wait for a rank whose libraries cannot be imported.
    sys.excepthook = ending.leave_import
    # What the imports make is no garbage, and looking through it takes a tenth of a start. `main` looks again, with the model made.
    gc.disable()
