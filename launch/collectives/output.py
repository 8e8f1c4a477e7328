"""What rank 0 prints and writes."""

from dataclasses import dataclass, field

import numpy as np

from common import units
from common.process.ranks import Ranks
from common.record import records
from launch.collectives import options as collective_options
from launch.collectives import picture, results, table
from launch.report.export import files, vega_lite


@dataclass
class Output:
    """Prints the table as it grows, and writes the files after each library, so that they are there if a later one fails.

    All ranks call it alike; only rank 0 prints and writes. `reasons`: {library: why it is skipped}.
    """

    options: collective_options.Collectives
    ranks: Ranks
    reasons: dict
    num_nodes: int = 0
    oversubscribed: bool = False
    copies: dict = field(default_factory=dict)
    versions: dict = field(default_factory=dict)
    num_shown: int = 0

    def begin(self, num_nodes, oversubscribed, copies):
        """Prints what all measurements share; `copies`: {size in bytes: seconds by repeat}."""
        self.num_nodes, self.oversubscribed, self.copies = num_nodes, oversubscribed, copies
        sizes = collective_options.sizes(self.options)
        self._print(
            f"# {self.ranks.size} ranks on {num_nodes} node{'' if num_nodes == 1 else 's'}, {units.whole_text(sizes[0])} to "
            f"{units.whole_text(sizes[-1])}, factor {self.options.factor}",
            f"# time: {table.interval_text(self.options.repeats)}",
            "# copy: of the size in main memory, on all ranks at the same time",
            *(["# the ranks share cores: with cores of their own they would be faster"] if self.oversubscribed else []),
            *(f"# skipping {name}: {reason}" for name, reason in self.reasons.items()),
        )

    def header(self, name, collective):
        self._print(*table.header(name, collective, self.ranks.size, self._place()))

    def skip(self, name, collective, reason):
        self._print("#", f"# [{self._place()}] skipping {collective} over {name}: {reason}")

    def row(self, out_of_place, in_place, requested_bytes):
        copied = self.copies.get(requested_bytes)
        self._print(table.row(out_of_place, in_place, copied and float(np.median(copied))))

    def footer(self, measurements, fit):
        self._print(*table.footer(measurements, fit))

    def write(self, measurements, fits, is_last):
        """Writes the files that are asked for, with what has been measured so far; says where they are after the last library."""
        if self.ranks.rank:
            return
        if self.options.json:
            run = (records.machine_name(self.options), self.ranks, self.num_nodes, self.oversubscribed, self.versions)
            files.write(self.options.json, results.as_json(results.document(*run, self.copies, measurements, fits)))
        if self.options.csv:
            files.write(self.options.csv, results.as_csv(measurements))
        if self.options.svg:
            copies = [(size, float(np.median(seconds))) for size, seconds in self.copies.items()]
            for collective in dict.fromkeys(fit.collective for fit in fits):
                spec = picture.spec(collective, measurements, fits, copies)
                files.write(self.options.svg / f"{collective}.svg", vega_lite.svg(spec))
        for name in ("json", "csv", "svg") if is_last else ():
            if path := getattr(self.options, name):
                self._print(f"# {name}: {path}")

    def _place(self):
        self.num_shown += 1
        num_libraries = len(collective_options.libraries(self.options)) - len(self.reasons)
        return f"{self.num_shown}/{num_libraries * len(collective_options.collectives(self.options))}"

    def _print(self, *lines):
        if self.ranks.rank == 0:
            print("\n".join(lines), flush=True)
