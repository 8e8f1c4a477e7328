"""The terminal: the answer on one screen, and the whole report."""

import textwrap
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from common.backends import file_of, has_one_rank
from common.errors import printable
from common.terminal import open_console, print_line, print_tables
from launch.report.answer import Answer, Ranking
from launch.report.findings import Section
from launch.report.questions import first
from launch.report.questions.first import Group
from launch.report.ratio_text import EQUAL, NO_DIFFERENCE, percents
from launch.report.report import Report
from launch.report.statistics import MARGIN

MAX_WIDTH, MAX_LINES = 100, 30
# The most lines of the parts below the backends.
MAX_CAUSES, MAX_RELIABILITY = 5, 6
# A heading and two backends.
MIN_RANKING_LINES = 3
INDENT = "  "
VALUE_WIDTH, STARTUP_WIDTH, PERCENT_WIDTH, MARK_WIDTH = 6, 6, 9, 3
COLUMN_WIDTH = VALUE_WIDTH + STARTUP_WIDTH + PERCENT_WIDTH + MARK_WIDTH
GAP = 2
MARKS = {first.SLOWER: "<", NO_DIFFERENCE: "=", EQUAL: "=="}


def show(answer: Answer, links: Sequence[str], console: Console | None = None) -> None:
    """Prints the screen. `links` are its last lines: where all tables are."""
    console = console or Console()
    for line in lines(answer, links, min(console.width, MAX_WIDTH) if console.is_terminal else MAX_WIDTH):
        console.print(line, soft_wrap=True, highlight=False)


def show_report(report: Report, console: Console | None = None) -> None:
    """Prints the report: questions with sentences and tables, and the answer in one sentence last, beside the prompt."""
    console = console or open_console()
    show_sections(report.sections, console)
    print_line(console, report.answer.quotation, style="bold")


def show_sections(sections: Iterable[Section], console: Console | None = None) -> None:
    """Prints questions with sentences and tables."""
    console = console or open_console()
    for section in sections:
        print_line(console, section.question, style="bold")
        for sentence in section.sentences:
            print_line(console, sentence)
        print_tables(section.tables, console=console)
        console.print()


def lines(answer: Answer, links: Sequence[str], width: int) -> list[Text]:
    """Returns the lines of the screen, at most MAX_LINES; links are not broken into lines."""
    top = [
        *_wrapped(_title(answer.rankings), width, style="bold"),
        *_wrapped("; ".join([answer.certainty, *_legend(answer.rankings)]), width),
    ]
    reliability, num_left = _whole([_wrapped(sentence, width) for sentence in answer.reliability], MAX_RELIABILITY)
    advice = _wrapped(f"Next: {'; '.join(answer.advice)}.", width) if answer.advice else []
    # What the backends do not need, beside the heading of the causes and the line on what is left out.
    num_spare = MAX_LINES - sum(map(len, (top, reliability, advice, links))) - sum(1 + len(ranking.backends) for ranking in answer.rankings)
    causes, num_causes_left = _whole(_causes(answer, width), max(MAX_CAUSES, num_spare - 2))
    why = [Text(f"Why, at {answer.causes_at}:" if answer.causes_at else "Why:", style="bold"), *causes] if causes else []
    num_left += num_causes_left
    below = [
        *why,
        *reliability,
        *advice,
        *([Text(f"{num_left} more {'sentence is' if num_left == 1 else 'sentences are'} in --full.")] if num_left else []),
        *(Text(printable(link)) for link in links),
    ]
    return [*top, *_rankings(answer.rankings, MAX_LINES - len(top) - len(below), width), *below]


def _title(rankings: Sequence[Ranking]) -> str:
    scalings = {ranking.name.removeprefix(ranking.short_name).strip(", ") for ranking in rankings}
    scaling = f", {scalings.pop()}" if len(scalings) == 1 and scalings != {""} else ""
    measured = "Seconds to solution" if not rankings or any(ranking.has_target for ranking in rankings) else "Samples a second"
    return f"{measured}, + seconds of start-up{scaling}; ranked by how much longer an epoch takes"


def _legend(rankings: Iterable[Ranking]) -> list[str]:
    verdicts = {result.verdict for ranking in rankings for group in ranking.groups for result in group.results}
    meaning_of = {first.SLOWER: "slower", NO_DIFFERENCE: NO_DIFFERENCE, EQUAL: f"none beyond {100 * MARGIN:g} %"}
    meanings = [f"{mark} {meaning_of[verdict]}" for verdict, mark in MARKS.items() if verdict in verdicts]
    return [", ".join(meanings)] if meanings else []


def _causes(answer: Answer, width: int) -> list[list[Text]]:
    """Returns the lines of each cause."""
    kind_width = max((len(cause.kind) for cause in answer.causes), default=0)
    return [_wrapped(cause.text, width, f"{INDENT}{cause.kind:<{kind_width}}{INDENT}") for cause in answer.causes]


def _wrapped(text: str, width: int, start: str = "", style: str = "") -> list[Text]:
    """Returns a text as lines, the first of which begins with `start`; further ones are indented as far."""
    rows = textwrap.wrap(printable(text), max(width - len(start), 20), break_on_hyphens=False)
    return [Text(f"{start if number == 0 else ' ' * len(start)}{row}", style=style) for number, row in enumerate(rows)]


def _whole(sentences: Iterable[list[Text]], num_lines: int) -> tuple[list[Text], int]:
    """Returns the lines of the first sentence, and of those that fit beside it as a whole, and how many sentences do not."""
    shown: list[Text] = []
    num_left = 0
    for sentence in sentences:
        if shown and len(shown) + len(sentence) > num_lines:
            num_left += 1
        else:
            shown += sentence
    return shown, num_left


def _rankings(rankings: Sequence[Ranking], num_lines: int, width: int) -> list[Text]:
    """Returns the lines of the rankings, of which none has fewer than MIN_RANKING_LINES; rankings that find no room are counted."""
    fitting = max(num_lines // MIN_RANKING_LINES, 1)
    if len(rankings) > fitting:
        fitting = max((num_lines - 1) // MIN_RANKING_LINES, 1)
        shown = _rankings(rankings[:fitting], num_lines - 1, width)
        return [*shown, Text(f"and {len(rankings) - fitting} more workloads")]
    shown = []
    for number, ranking in enumerate(rankings):
        # What a ranking does not need is left to those after it.
        share = (num_lines - len(shown)) // (len(rankings) - number)
        shown += _ranking(ranking, share, _name_width(rankings), width)
    return shown


def _heading(ranking: Ranking) -> str:
    return f"{ranking.short_name}, target {ranking.target:g}" if ranking.has_target else ranking.short_name


def _name_width(rankings: Sequence[Ranking]) -> int:
    """Returns the width of the headings and names of backends, which is the same in all rankings."""
    names = [f"{INDENT}{backend}" for ranking in rankings for backend in ranking.backends]
    return max(map(len, (*map(_heading, rankings), *names)), default=0) + GAP


def _ranking(ranking: Ranking, num_lines: int, name_width: int, width: int) -> list[Text]:
    """Returns the heading of a ranking and a line for each backend; those that find no room are counted."""
    heading = _heading(ranking)
    groups = ranking.groups[-max((width - name_width) // COLUMN_WIDTH, 1) :]
    column_width = max((width - name_width) // len(groups), COLUMN_WIDTH)
    shown_backends = _chosen(ranking.backends, groups, num_lines)
    titles = "".join(f"{group.name:<{column_width}}" for group in groups)
    shown = [Text(printable(f"{heading:<{name_width}}{titles}".rstrip()), style="bold")]
    for backend in shown_backends:
        line = Text(printable(f"{INDENT + backend:<{name_width}}"))
        for group in groups:
            line.append(_value(group, backend, column_width))
        line.rstrip()
        shown.append(line)
    if left_out := [backend for backend in ranking.backends if backend not in shown_backends]:
        shown.append(Text(f"{INDENT}and {len(left_out)} more{_span_of(groups[-1], left_out)}"))
    return shown


def _chosen(backends: Sequence[str], groups: Sequence[Group], num_lines: int) -> list[str]:
    """Returns the backends that find room below a heading: the fastest of the largest size, and then as `_rank` has them."""
    if len(backends) < num_lines:
        return list(backends)
    largest_size = max(group.num_ranks for group in groups)
    fastest_of = {group.name: group.fastest.backend for group in groups if group.fastest}
    leading = {fastest_of[group.name] for group in groups if group.num_ranks == largest_size and group.name in fastest_of}
    in_order = sorted(backends, key=lambda backend: (backend not in leading, _rank(backend), backend not in fastest_of.values()))
    chosen = in_order[: max(num_lines - 2, 1)]
    return [backend for backend in backends if backend in chosen]


def _rank(backend: str) -> int:
    """Returns how early a backend is shown: 0 for a distributed one, 1 for a variant, or for plain training, which is its reference."""
    return int(backend != file_of(backend) or has_one_rank(backend))


def _span_of(group: Group, backends: Sequence[str]) -> str:
    percents = [100 * (result.ratio.value - 1) for result in group.results if result.ratio and result.backend in backends]
    if not percents:
        return ""
    span = dict.fromkeys(f"{percent:+.0f}" for percent in (min(percents), max(percents)))
    return f": {' to '.join(span)} % at {group.name}"


def _value(group: Group, backend: str, width: int) -> Text:
    """Returns the value of a backend in a group, its percentage and mark, and its interval where that fits."""
    result = next((result for result in group.results if result.backend == backend), None)
    if result is None:
        return Text(" " * width)
    if result.value is None:
        return Text(f"{result.miss or '':<{width}}"[:width], style="red")
    value = f"{result.value:>{VALUE_WIDTH}.{2 if result.value < 100 else 0}f}{result.startup:>{STARTUP_WIDTH}}"
    if result.remark:
        return Text(f"{value}  {result.remark}"[: width - GAP].ljust(width))
    is_fastest = result is group.fastest
    percent = first.FASTEST if is_fastest else f"{100 * (result.ratio.value - 1):+.0f} %" if result.ratio else ""
    line = Text(f"{value}{percent:>{PERCENT_WIDTH}}{MARKS.get(result.verdict or '', ''):>{MARK_WIDTH}}")
    if is_fastest:
        line.stylize("bold")
    if result.ratio and result.ratio.low and result.ratio.high:
        interval = f" ({percents(result.ratio.low, result.ratio.high)})"
        line.append(interval if len(interval) <= width - COLUMN_WIDTH else "")
    line.truncate(width, pad=True)
    return line
