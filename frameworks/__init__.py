# Before any module here imports a package that only the folder of launch/setup.sh --light may have.
import sys

import common  # noqa: F401
from common.process import ending, inherited

inherited.remove()
if any(argument.startswith(f"{__name__}.") for argument in sys.orig_argv):
    # Of a rank whose libraries cannot be imported: the others would wait for it.
    sys.excepthook = ending.fail_import
