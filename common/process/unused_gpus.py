"""GPUs of a node for computing that are not NVIDIA's: where no library uses them, a node does not train on its cores unasked.

Those inside a laptop's processor do not count. Only PyTorch for ROCm uses AMD's, and nothing Intel's.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from common.errors import UserError

DRM = Path("/sys/class/drm")
AMD, INTEL = 0x1002, 0x8086
# Processors with graphics give them a smaller part of their memory.
LEAST_VRAM_BYTES = 16e9
# Data Center GPU Max (INTEL_PVC_IDS of Linux).
INTEL_MAX = range(0x0BD0, 0x0BDC)


class Card(NamedTuple):
    """A GPU as Linux shows it: the numbers of its vendor and its model, and the memory of its own."""

    vendor: int
    model: int
    vram_bytes: int


def cards(folder: Path = DRM) -> list[Card]:
    """Lists the GPUs of this node."""
    paths = sorted(folder.glob("renderD*/device"))
    return [Card(_number(path / "vendor"), _number(path / "device"), _number(path / "mem_info_vram_total")) for path in paths]


def _number(path: Path) -> int:
    """Reads a number of Linux; 0 where it does not show it."""
    try:
        return int(path.read_text(), 0)
    except (OSError, ValueError):
        return 0


def problem(gpus: Iterable[Card]) -> str | None:
    """Says which of these GPUs the libraries here do not use, and what to do; None where there are none."""
    gpus = list(gpus)
    amd = sum(card.vendor == AMD and card.vram_bytes >= LEAST_VRAM_BYTES for card in gpus)
    intel = sum(card.vendor == INTEL and card.model in INTEL_MAX for card in gpus)
    number, vendor, users = (amd, "AMD", "only PyTorch for ROCm uses") if amd else (intel, "Intel", "Tandem does not use")
    if not number:
        return None
    text = f"an {vendor} GPU" if number == 1 else f"{number} {vendor} GPUs"
    return f"this node has {text}, which {users}; give --device cpu to train on its cores"


def expect_none(gpus: Iterable[Card]) -> None:
    """Raises UserError where nothing here uses one of these GPUs: its node would train on its cores, which nobody asked for."""
    if reason := problem(gpus):
        raise UserError(reason)
