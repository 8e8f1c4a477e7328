"""The folder with local data, which --data-dir names."""

import contextlib

from common.errors import UserError


@contextlib.contextmanager
def looking_into(folder, dataset, what):
    """Around what looks for the files of a data set in its folder; `what` says which files those are.

    Raises UserError where there is no folder, and where it may not be looked into.
    """
    if folder is None:
        raise UserError(f"--dataset {dataset} needs --data-dir, the folder with {what}")
    try:
        if not folder.is_dir():
            raise UserError(f"--data-dir {folder} is no folder; give the one with {what}")
        yield
    except OSError as error:
        raise UserError(f"--data-dir {folder} cannot be read ({error.strerror}); give the folder with {what}") from None
