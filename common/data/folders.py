"""The folder of --data-dir."""

import contextlib

from common.errors import UserError


@contextlib.contextmanager
def searching(folder, dataset, content):
    """Encloses the search for the files of a dataset, which `content` describes. Raises UserError for a missing or unreadable folder."""
    if folder is None:
        raise UserError(f"--dataset {dataset} requires --data-dir, the folder with {content}")
    try:
        if not folder.is_dir():
            raise UserError(f"--data-dir {folder} is not a folder; give the one with {content}")
        yield
    except OSError as error:
        raise UserError(f"--data-dir {folder} cannot be read ({error.strerror}); give the folder with {content}") from None
