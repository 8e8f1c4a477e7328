"""Writes the data of a workload into a folder from which runs read it a batch at a time (--data-format)."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from common import command_line, workloads
from common.command_line import Positional
from common.config import FileFormat, Precision, Settings
from common.data import datasets, stored
from common.declarations import SHELL_PYTHON
from common.errors import UserError

PROGRAM = f"{SHELL_PYTHON} -m launch.convert_data"


@dataclass(frozen=True)
class Conversion:
    """What to convert, into which format and folder."""

    workload: Annotated[str, Positional]
    """Workload whose data is converted."""
    data_format: Annotated[FileFormat, Positional]
    """Format."""
    folder: Annotated[Path, Positional]
    """Folder to write into, a new or an empty one."""
    dataset: str | None = None  # pyright: ignore[reportInvalidTypeForm]
    """Dataset. Default: the workload's own."""
    data_dir: Path | None = None
    """Folder with the dataset's files, for one that is not installed."""
    precision: Precision = "fp32"  # pyright: ignore[reportInvalidTypeForm]
    """Precision of the runs that will read it; samples of bytes are the same for all."""


def run(conversion: Conversion) -> int:
    """Converts and returns the exit status. Raises UserError for what cannot be converted, or not into this folder."""
    values = vars(conversion).copy()
    folder = values.pop("folder")
    settings = workloads.resolve(Settings(**values), 1)
    load = datasets.loader(dataclasses.replace(settings, data_format="memory"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UserError(f"{folder} has files; give a new or an empty folder")
        dataset = load()
        stored.write(folder, settings, dataset)
    except OSError as error:
        raise UserError(f"cannot write to {folder} ({error.strerror or error}); give another folder") from None
    num_bytes = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder}: {len(dataset.train) + len(dataset.test):,} samples, {num_bytes / 1e6:,.1f} MB")
    return 0


if __name__ == "__main__":
    command_line.main(run, Conversion, PROGRAM, "Converts the data of a workload into a format from which runs read it from disk.")
