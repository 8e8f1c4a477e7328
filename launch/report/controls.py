"""Whether the verdicts of a matrix can be relied on: how they judge a copy of a backend, and one that was delayed."""

from collections.abc import Iterable
from typing import NamedTuple

from common.config import CONTROL_DELAY, Control
from common.record.definition import Record
from common.words import ranks_of
from launch.report import entries, measures
from launch.report.entries import Comparison, Entry
from launch.report.questions import first
from launch.report.ratio_text import interval, uncertainty
from launch.report.runs import Runs
from launch.report.statistics import Ratio

DELAY = f"{100 * CONTROL_DELAY:g} %"


class Judgement(NamedTuple):
    """How the controls of a backend at a size were judged: by the ratios of their seconds per epoch to its own; None: there is none.

    `at` names the comparison and the size.
    """

    at: str
    backend: str
    copy: Ratio | None
    delayed: Ratio | None

    @property
    def copy_differs(self) -> bool:
        """Whether the verdict on the copy is that it differs."""
        return bool(self.copy and self.copy.verdict)

    @property
    def delay_shows(self) -> bool | None:
        """Whether the verdict on the delayed one is that it is slower; None where there is no verdict."""
        if self.delayed is None or self.delayed.verdict is None:
            return None
        return self.delayed.verdict and self.delayed.value > 1

    @property
    def is_as_it_should_be(self) -> bool:
        """Whether no control was judged as what it is not."""
        return not self.copy_differs and self.delay_shows is not False


def judged(runs: Runs) -> list[Judgement]:
    """Judges the controls of all comparisons."""
    return [judgement for comparison in runs.comparisons for judgement in judgements(comparison, runs.not_compared)]


def judgements(comparison: Comparison, records: Iterable[Record]) -> list[Judgement]:
    """Judges the controls of the entries of a comparison, which are among the records."""
    controls = [record for record in records if record.settings.control and entries.group_of(record) == comparison[:3]]
    controlled = sorted({(record.num_ranks, record.backend) for record in controls})
    return [
        Judgement(
            f"{comparison.name}, {ranks_of(num_ranks)}",
            backend,
            _ratio("copy", controls, entry, comparison),
            _ratio("delayed", controls, entry, comparison),
        )
        for num_ranks, backend in controlled
        if (entry := comparison.entry(backend, num_ranks))
    ]


def _ratio(control: Control, controls: Iterable[Record], entry: Entry, comparison: Comparison) -> Ratio | None:
    """Returns the ratio of the seconds per epoch of a control to those of its entry; None where either has none.

    Its interval has the noise of these two alone, and is one of as many as the entries of this size have.
    """
    of_entry = [record for record in controls if (record.backend, record.num_ranks) == (entry.backend, entry.num_ranks)]
    of_control = Entry(entry.backend, entry.num_ranks, [record for record in of_entry if record.settings.control == control])
    compared = [result.entry for result in first.results_of(comparison.of_size(entry.num_ranks))]
    return measures.epoch_ratio(of_control, entry, [], num_pairs=measures.num_pairs_of(compared))


def sentence(judgement: Judgement) -> str:
    """Returns the sentence on a judgement, which warns where a control was not judged as what it is."""
    copy, delayed = _value(judgement.copy), _value(judgement.delayed)
    if judgement.copy_differs:
        copy += ", so do not rely on these verdicts"
    if judgement.delay_shows:
        delayed = "found"
    elif judgement.delay_shows is False:
        delayed = f"not found, {delayed}, so these verdicts may miss differences of {DELAY}"
    return f"Controls of {judgement.at}, {judgement.backend}: copy: {copy}; {DELAY} slower: {delayed}."


def _value(ratio: Ratio | None) -> str:
    """Returns a ratio with its interval, or why it gives no verdict."""
    if ratio is None:
        return "not measured"
    return f"{ratio.value:.2f} ({interval(ratio) if ratio.verdict is not None else f'no verdict, {uncertainty(ratio)}'})"
