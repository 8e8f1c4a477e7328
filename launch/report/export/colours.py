"""One colour for each backend, the same in every chart and table of a report."""

import itertools
from collections.abc import Iterable

from common.declarations import BASELINE
from launch.report.questions import step

# Okabe and Ito, Color Universal Design (2008): eight colours that remain distinguishable under common colour blindness. A medium grey
# replaces black, which would be invisible on a dark page.
GREY, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    "#8a8a8a", "#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7",
)  # fmt: skip
FIXED = {BASELINE: GREY, "ddp": BLUE, "deepspeed_zero": ORANGE, "horovod_torch": GREEN, "horovod_tf": VERMILION, "horovod_keras": PURPLE}
# After those of Okabe and Ito some of the muted ones of Tol, "Colour Schemes" (SRON/EPS/TN/09-002, 2021): olive, wine, rose and sand.
FREE = (SKY, YELLOW, "#999933", "#882255", "#cc6677", "#ddcc77")
# Stages of a run and parts of a step are greys of one hue and different lightness, so that none looks like a backend.
STAGES = {"launch": "#2b3440", "import": "#4d5a6b", "init": "#738296", "load": "#9aa7b8", "train": "#c3ccd8", "evaluate": "#e6eaf0"}
PARTS = {part: STAGES[stage] for part, stage in zip(step.PARTS, ("load", "train", "import", "launch"), strict=True)}


def of_backends(backends: Iterable[str]) -> dict[str, str]:
    """Returns the colour of each backend; backends that are not in FIXED take the FREE colours, then those of FIXED."""
    spare = itertools.cycle((*FREE, *FIXED.values()))
    return {backend: FIXED.get(backend) or next(spare) for backend in backends}
