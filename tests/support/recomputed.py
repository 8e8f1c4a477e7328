"""Statistics of committed records from their JSON with numpy and scipy alone, and whether a text shows them; nothing is the report's."""

import functools
import itertools
import json
import math
import re
from collections import defaultdict

import numpy as np
from scipy import special

from tests.support.running import ROOT

REFERENCE = ROOT / "results" / "reference"
WORKLOADS = ("cnn", "transformer")
STARTUP = ("launch_seconds", "import_seconds", "init_seconds")
MEBI = 2**20
# Numbers that were not measured.
CONSTANTS = re.compile(
    r"1 and 2 ranks|\b[12] ranks?\b|(?:beyond|within|under|by) 5 %|5 % slower|95 % intervals?|first 2 steps|of 6 repeats|Zen 5|zen\d-\w+|"
    r"-n2-|@3|family 26 model 2|2 cores|\b[0-9a-f]{8}\b|0\.28\.1 of 2023|CVE-2024-10190"
)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-\d+)?\Z")


@functools.cache
def runs_of(name, pattern="*"):
    """The records of a committed set as JSON: {(workload, ranks, backend, control): {(session, repeat): record}}."""
    runs = defaultdict(dict)
    for path in sorted((REFERENCE / name).glob(f"{pattern}.json")):
        record = json.loads(path.read_text())
        settings = record["settings"]
        session = settings["run_id"].partition(f"-{record['workload']}-")[0]
        runs[record["workload"], record["num_ranks"], record["backend"], settings.get("control")][session, record["repeat"]] = record
    return runs


def trimmed(values):
    """The mean without the smallest and the largest."""
    return np.mean(sorted(values)[1:-1])


def epoch(record, num_epochs=None):
    """The mean seconds of the first epochs of a run."""
    return np.mean(record["train_seconds"][:num_epochs]) + np.mean(record["eval_seconds"][:num_epochs])


def interval(above, below, others, num_pairs):
    """The ratio of two sets of positive numbers in pairs, with its interval by the rule of launch/report/README.md."""
    sets = np.log([above, below, *others])
    num_sets, num_repeats = sets.shape
    residuals = sets - sets.mean(axis=0) - sets.mean(axis=1, keepdims=True) + sets.mean()
    freedom_of_all = (num_repeats - 1) * (num_sets - 1)
    variances = (residuals**2).sum(axis=1) * num_sets / freedom_of_all
    of_two = np.maximum(variances[:2], np.median(variances)) / num_repeats
    freedoms = np.where(variances[:2] > np.median(variances), num_repeats - 1, freedom_of_all)
    freedom = min(of_two.sum() ** 2 / (of_two**2 / freedoms).sum(), freedom_of_all)
    reach = math.exp(-special.stdtrit(freedom, 0.025 / num_pairs) * math.sqrt(of_two.sum()))
    center = math.exp((sets[0] - sets[1]).mean())
    return center, center / reach, center * reach


class Size:
    """The runs of the backends of a workload at a number of ranks in a set, and what follows from them."""

    def __init__(self, runs, workload, num_ranks):
        self.runs, self.controls = {}, {}
        for (*at, backend, control), of_backend in runs.items():
            if at == [workload, num_ranks]:
                (self.runs if control is None else self.controls)[control or backend] = of_backend
        self.num_pairs = math.comb(len(self.runs), 2)
        self.fastest = min(self.runs, key=self.epoch_seconds)
        self.first = min(self.runs, key=self.time)

    def values(self, backend, value_of):
        return [value_of(record) for _, record in sorted(self.runs[backend].items())]

    def trimmed(self, backend, key):
        return trimmed(self.values(backend, lambda record: record[key]))

    def time(self, backend):
        return self.trimmed(backend, "time_to_solution_seconds")

    def startup(self, backend):
        return sum(self.trimmed(backend, key) for key in STARTUP)

    def with_startup(self, backend):
        return trimmed(self.values(backend, lambda record: sum(record[key] for key in (*STARTUP, "time_to_solution_seconds"))))

    def memory(self, backend):
        return self.trimmed(backend, "peak_memory_bytes") / MEBI

    def epoch_seconds(self, backend):
        return math.exp(np.mean(np.log(self.values(backend, epoch))))

    def breakdown(self, backend, key):
        return np.array(self.values(backend, lambda record: np.mean(record["step_breakdown"][key])))

    def ratio(self, above, below):
        """The ratio of seconds per epoch, with the noise of all backends of the size."""
        return self._ratio(self.runs[above], self.runs[below], [self.runs[name] for name in self.runs if name not in (above, below)])

    def control_ratio(self, backend, control):
        """The ratio of a control to its backend, with the noise of these two."""
        return self._ratio(self.controls[control], self.runs[backend], [])

    def _ratio(self, above, below, others):
        """Of a pair of runs the epochs count that both have trained."""
        keys = sorted(above)
        num_epochs = {key: min(len(of[key]["train_seconds"]) for of in (above, below)) for key in keys}
        sides = [[epoch(of[key], num_epochs[key]) for key in keys] for of in (above, below)]
        return interval(*sides, [[epoch(of[key]) for key in keys] for of in others], self.num_pairs)


@functools.cache
def size(workload, num_ranks=2, name="zen5-default"):
    return Size(runs_of(name), workload, num_ranks)


def shows(text, values):
    """Whether a text has these numbers and no others, each rounded to the decimals that it has there."""
    words = [word.rstrip(".;:").lstrip("+") for word in re.split(r"[ (),]+", CONSTANTS.sub("", text))]
    numbers = [word for word in words if NUMBER.match(word)]
    values = list(values)
    return len(numbers) == len(values) and all(itertools.starmap(is_rounded, zip(numbers, values, strict=True)))


def is_rounded(number, value):
    """Whether a text is this value. The report rounds degrees of freedom to a decimal, so that a bound may be off by a millionth."""
    form = ".0e" if "e" in number else f".{len(number.partition('.')[2])}f"
    return number in {format(value * (1 + error), form) for error in (-1e-5, 0, 1e-5)}


def unexplained(line, claims):
    """What is left of a line with a number in it, without the claims that are as computed again; empty for none."""
    workload = next((name for name in WORKLOADS if name in line), None)
    for pattern, values_of in claims:
        for match in list(re.finditer(pattern, line)):
            if shows(match[0], values_of(workload, *match.groups())):
                line = line.replace(match[0], "", 1)
    return line if re.search(r"\d", CONSTANTS.sub("", line)) else ""
