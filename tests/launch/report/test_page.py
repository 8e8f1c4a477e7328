"""The page in a real browser: it draws every chart, makes no request, and its tables sort."""

import html as html_text
import json
import re

import pytest

from common.declarations import declared
from common.record import files
from launch.report.export import charts
from launch.report.report import report_of
from launch.report.runs import collect
from tests.support import browser
from tests.support.answers import answered, drawn
from tests.support.answers import page as page_of
from tests.support.made_records import ended, made, noisy, not_reached, on, repeats, step_breakdown
from tests.support.running import ROOT

LATER = {"started_at": "2026-02-01T00:00:00Z"}
NEEDS_BROWSER = pytest.mark.skipif(browser.why_not() is not None, reason=str(browser.why_not()))

OPEN_ALL = "document.querySelectorAll('details').forEach((details) => { details.open = true; })"


def page_records():
    """Records for every feature of the page: repeats, both kinds of scaling, oversubscription, failures, and text to be escaped."""
    strong = {"scaling": "strong", "workload_digest": "e" * 64}
    return [
        *repeats([9.0, 9.5, 10.0], backend="single"),
        *repeats([10.0, 10.4, 9.9]),
        *repeats([6.0, 6.3, None], num_ranks=2, step_breakdown=step_breakdown()),
        *(
            run | {"machine_noise": noisy([10.0, speed], num_ranks=2)["machine_noise"]}
            for run, speed in zip(repeats([5.0, 5.2, 5.1], backend="horovod_tf", num_ranks=2), (10.0, 10.1, 8.0), strict=True)
        ),
        *repeats([12.0, 12.0, 12.0], num_ranks=8, oversubscribed=True),
        ended("failed", backend="deepspeed_zero", num_ranks=2) | {"error": "</script><b>it broke</b> & more"},
        made(**strong),
        made(num_ranks=2, seconds=6.0, **strong),
        made(workload="transformer-alcf", workload_digest="f" * 64),
    ]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    damaged = [files.Damaged(path.with_name("half.json"), "not JSON: it ends early")]
    path.write_text(page_of(answered(page_records(), damaged)))
    return path


@pytest.fixture(scope="module")
def reference_page(tmp_path_factory):
    path = tmp_path_factory.mktemp("reference") / "report.html"
    path.write_text(page_of(report_of(*collect([ROOT / "results" / "reference" / "two-cores"]))))
    return path


@pytest.fixture(scope="module")
def machines_page(tmp_path_factory):
    path = tmp_path_factory.mktemp("machines") / "report.html"
    runs = [*repeats([9.0, 9.5, 10.0], backend="single"), *repeats([10.0, 10.4, 9.9])]
    path.write_text(page_of(answered([*runs, *on("there", [run | LATER for run in runs])])))
    return path


def specs(text):
    return [json.loads(spec) for spec in re.findall(r'<script type="application/json">(.*?)</script>', text)]


def headings(text):
    return re.findall(r"<h3>(.*?) <small>(.*?)</small></h3>", text)


def test_the_page_has_every_kind_of_chart_the_summary_the_notes_and_escaped_text_from_records(page):
    text = page.read_text()
    expected = {
        "Time to solution", "Throughput", "Ratio to fastest", "Accuracy over time", "Throughput over own 1 rank", "Where a run's time goes",
        "Parts of a step", "Loss",
    }  # fmt: skip
    assert {html_text.unescape(kind) for kind, _ in headings(text)} == expected
    assert text.index("<h1>") < text.index("horovod_tf reached the target first, in 5.10") < text.index("<h2>")
    assert all(note in html_text.unescape(text) for note in answered(page_records()).notes)
    assert "half.json" in text
    assert "<b>it broke</b>" not in text
    assert "&lt;/script&gt;&lt;b&gt;it broke&lt;/b&gt; &amp; more" in text


@pytest.mark.parametrize(
    "records",
    [
        [ended("failed")],
        [ended("started"), ended("timeout", backend="single")],
        [not_reached()],
        [made(workload="transformer-alcf")],
        [made(losses=[None], step_seconds=[None], train_seconds=[None], eval_seconds=[None], accuracies=[None])],
        [made(num_ranks=8, oversubscribed=True)],
        [made(launch_seconds=None, load_seconds=None, eval_seconds=[], resumed_after_epochs=1, time_to_solution_seconds=None)],
        [made(losses=[0.0, 1.0])],
    ],
)
def test_a_page_is_made_of_records_with_few_values(records):
    text = page_of(answered(records))
    assert "What failed, and why?" in text
    assert all(spec["data"]["values"] for spec in specs(text))


def test_the_losses_of_a_resumed_run_are_not_drawn_as_those_of_its_first_steps():
    later = {"resumed_after_epochs": 2, "losses": [0.4, 0.3]}
    (chart,) = drawn(answered([made(), not_reached(backend="horovod_tf", **later)]))["same"]
    assert {row["backend"] for row in chart.drawn.to_dict()["data"]["values"]} == {"ddp"}
    assert drawn(answered([not_reached(**later)]))["same"] == []


def test_oversubscribed_entries_are_in_no_chart(page):
    text = page.read_text()
    assert "oversubscribed" in text
    for (kind, subject), spec in zip(headings(text), specs(text), strict=True):
        assert "8 ranks" not in f"{subject} {json.dumps(spec)}", kind
        assert 8 not in {row.get("ranks") for row in spec["data"]["values"]}, kind


def test_sixteen_backends_have_different_colours():
    backends = list(dict.fromkeys([*charts.FIXED, *declared()]))[:16]
    assert len(set(charts.colours_of(backends).values())) == 16


def test_each_chart_is_drawn_once_and_has_what_it_shows_in_words(page):
    text = html_text.unescape(page.read_text())
    assert len(set(headings(text))) == len(headings(text))
    in_words = dict(zip(headings(text), re.findall(r'role="img" aria-label="(.*?)"', text), strict=True))
    assert all(words.startswith(f"{kind}: {subject}. ") for (kind, subject), words in in_words.items())
    assert "single 9.50 s +3.2 (1 rank); ddp 10.00 s +3.2 (1 rank)" in in_words["Time to solution", "cnn, weak scaling, target 0.94"]


def test_each_backend_has_one_colour_everywhere(page):
    text = page.read_text()
    pairs = set(re.findall(r'<i style="background:(#\w+)"></i>([\w@]+)</td>', text))
    for layer in (layer for spec in specs(text) for layer in [spec, *spec.get("layer", [])]):
        scale = layer.get("encoding", {}).get("color", {}).get("scale", {})
        if "ddp" in scale.get("domain", []):
            pairs |= set(zip(scale["range"], scale["domain"], strict=True))
    assert sorted(backend for _, backend in pairs) == ["ddp", "deepspeed_zero", "horovod_tf", "single"]
    assert len({colour for colour, _ in pairs}) == 4


def test_a_chart_cannot_end_its_script_element():
    text = page_of(answered([made() | {"backend": "</script><b>x"}, made()]))
    assert "<b>x" not in text
    assert "\\u003c/script>\\u003cb>x" in text


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    with browser.started(tmp_path_factory.mktemp("browser")) as driver:
        yield driver


@pytest.mark.matrix
@NEEDS_BROWSER
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("which", ["page", "reference_page", "machines_page"])
def test_the_page_draws_every_chart_without_messages_or_requests_and_never_scrolls_sideways(which, width, driver, request):
    path = request.getfixturevalue(which)
    browser.show(driver, path, (width, 900))
    widths = "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    folded = driver.execute_script(widths)
    driver.execute_script(OPEN_ALL)
    browser.wait_for_charts(driver)
    unfolded = driver.execute_script(widths)
    drawn = driver.execute_script("return [...document.querySelectorAll('.plot')].map((plot) => plot.querySelectorAll('svg path').length)")
    messages = driver.get_log("browser")
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    assert folded[0] <= folded[1]
    assert unfolded[0] <= unfolded[1]
    assert len(drawn) == len(specs(path.read_text()))
    assert min(drawn) > 2
    assert messages == []
    requested = {event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"}
    assert requested == {path.as_uri()}


@pytest.mark.matrix
@NEEDS_BROWSER
def test_a_table_sorts_both_ways_with_empty_cells_last(page, driver):
    def column(name):
        """The visible texts of a column, in order."""
        index = next(index for index, button in enumerate(buttons) if button.text.startswith(name))
        rows = table.find_elements("css selector", "tbody tr")
        return [row.find_elements("css selector", "td")[index].get_attribute("textContent").strip() for row in rows]

    def sorted_by(name):
        driver.execute_script("arguments[0].click()", next(button for button in buttons if button.text.startswith(name)))
        return column(name)

    browser.show(driver, page)
    driver.execute_script(OPEN_ALL)
    table = driver.find_element("css selector", "#first [aria-label='cnn, weak scaling'] table")
    buttons = table.find_elements("css selector", "th button")
    assert sorted_by("time to solution (s)") == ["5.10", "6.30", "9.50", "10.00", "12.00", "failed"]
    assert sorted_by("time to solution (s)") == ["failed", "12.00", "10.00", "9.50", "6.30", "5.10"]
    for _ in ("ascending", "descending"):
        assert [text == "-" for text in sorted_by("ratio to fastest")] == [False] * 5 + [True]


@pytest.mark.matrix
@NEEDS_BROWSER
@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)])
def test_the_page_fits_a_phone_and_has_a_dark_mode(page, width, dark, driver):
    browser.show(driver, page, (width, 900), dark)
    scrolled, seen = driver.execute_script("return [document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    paper, ink = driver.execute_script("const style = getComputedStyle(document.body); return [style.backgroundColor, style.color]")
    labels = driver.execute_script("return getComputedStyle(document.querySelector('.plot svg text')).fill")
    right = driver.execute_script(
        "return Math.max(...[...document.querySelectorAll('.plot svg')].map((plot) => plot.getBoundingClientRect().right))"
    )
    assert scrolled <= seen
    assert right <= seen
    assert (_light(paper), _light(ink), labels) == (not dark, dark, ink)


def _light(colour):
    return sum(map(int, re.findall(r"\d+", colour)[:3])) > 3 * 128


@pytest.mark.matrix
@NEEDS_BROWSER
def test_printing_unfolds_the_tables_and_is_dark_on_light(page, driver):
    browser.show(driver, page, dark=True)
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    closed = "return document.querySelectorAll('details:not([open])').length"
    before = driver.execute_script(closed)
    driver.execute_script("dispatchEvent(new Event('beforeprint'))")
    browser.wait_for_charts(driver)
    printed = driver.execute_script(closed)
    paper = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    undrawn = driver.execute_script("return [...document.querySelectorAll('.plot')].filter((plot) => !plot.querySelector('svg')).length")
    scrolls = driver.execute_script("return [...document.querySelectorAll('.scroll')].map((part) => getComputedStyle(part).overflowY)")
    driver.execute_script("dispatchEvent(new Event('afterprint'))")
    after = driver.execute_script(closed)
    assert (before > 3, printed, after) == (True, 0, before)
    assert _light(paper)
    assert (undrawn, set(scrolls)) == (0, {"visible"})
