"""The page, also in a real browser: it has every chart, runs no script and makes no request, and fits a phone."""

import json
import re
from html import unescape
from pathlib import Path

import pytest

from common.record import files
from launch.report.export import charts, drawing, html
from tests.support import browser
from tests.support.answers import answered
from tests.support.made_records import ended, made, noisy, not_reached, repeats, step_breakdown

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
        made(workload="resnet50", workload_digest="f" * 64),
        made(num_ranks=2) | {"backend": "</text></svg><script>x"},
    ]


@pytest.fixture(scope="module")
def report():
    return answered(page_records(), [files.Damaged(Path("half.json"), "not JSON: it ends early")])


@pytest.fixture(scope="module")
def drawn(report):
    return [chart for of_section in charts.of(report).values() for chart in of_section]


@pytest.fixture(scope="module")
def page(report, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html.text(report))
    return path


def headings(text):
    return re.findall(r"<h3>(.*?) <small>(.*?)</small></h3>", text)


def test_the_page_has_every_kind_of_chart_the_summary_and_escaped_text_from_records(page):
    text = page.read_text()
    expected = {
        "Time to solution", "Throughput", "Accuracy over time", "Throughput over own 1 rank", "Parts of a step",
    }  # fmt: skip
    assert {unescape(kind) for kind, _ in headings(text)} == expected
    assert text.index("<h1>") < text.index("horovod_tf reached the target first, in 5.10") < text.index("<h2>")
    assert "half.json" in text
    assert "<b>it broke</b>" not in text
    assert "<script" not in text
    assert text.count("&lt;script&gt;x") > 1
    assert "&lt;/script&gt;&lt;b&gt;it broke&lt;/b&gt; &amp; more" in text


@pytest.mark.parametrize(
    "records",
    [
        [ended("failed")],
        [ended("started"), ended("timeout", backend="single")],
        [not_reached()],
        [made(workload="resnet50")],
        [made(losses=[None], step_seconds=[None], train_seconds=[None], eval_seconds=[None], accuracies=[None])],
        [made(num_ranks=8, oversubscribed=True)],
        [made(launch_seconds=None, load_seconds=None, eval_seconds=[], resumed_after_epochs=1, time_to_solution_seconds=None)],
        [made(losses=[0.0, 1.0])],
    ],
)
def test_a_page_is_made_of_records_with_few_values(records, monkeypatch):
    monkeypatch.setattr(drawing, "svgs", lambda specs, **_: [""] * len(specs))
    assert "What failed, and why?" in html.text(answered(records))


def test_each_chart_is_drawn_once_and_has_what_it_shows_in_words(page):
    text = unescape(page.read_text())
    assert len(set(headings(text))) == len(headings(text))
    in_words = dict(zip(headings(text), re.findall(r'role="img" aria-label="(.*?)"', text), strict=True))
    assert all(words.startswith(f"{kind}: {subject}. ") for (kind, subject), words in in_words.items())
    assert "single 9.50 s +3.2 (1 rank); ddp 10.00 s +3.2 (1 rank)" in in_words["Time to solution", "cnn, weak scaling, target 0.94"]


def test_each_backend_has_one_colour_everywhere(page, drawn):
    pairs = set(re.findall(r'<i style="background:(#\w+)"></i>([\w@]+)</td>', page.read_text()))
    for layer in (layer for chart in drawn for layer in chart.drawn.to_dict()["layer"]):
        scale = layer.get("encoding", {}).get("color", {}).get("scale", {})
        if "ddp" in scale.get("domain", []):
            pairs |= set(zip(scale["range"], scale["domain"], strict=True))
    assert sorted(backend for _, backend in pairs)[1:] == ["ddp", "deepspeed_zero", "horovod_tf", "single"]
    assert len({colour for colour, _ in pairs}) == 5


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    with browser.started(tmp_path_factory.mktemp("browser")) as driver:
        yield driver


@pytest.mark.matrix
@NEEDS_BROWSER
@pytest.mark.parametrize(("width", "dark"), [(1280, True), (390, False)])
def test_the_page_makes_no_request_never_scrolls_sideways_and_has_a_dark_mode(page, width, dark, driver):
    browser.show(driver, page, (width, 900), dark)
    for unfold in ("", OPEN_ALL):
        driver.execute_script(unfold)
        scrolled, seen = driver.execute_script("return [document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert scrolled <= seen
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    requested = {event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"}
    assert (driver.get_log("browser"), requested) == ([], {page.as_uri()})
    paper, ink = driver.execute_script("const style = getComputedStyle(document.body); return [style.backgroundColor, style.color]")
    labels = driver.execute_script("return getComputedStyle(document.querySelector('.plot svg text')).fill")
    assert (_light(paper), _light(ink), labels) == (not dark, dark, ink)


def _light(colour):
    return sum(map(int, re.findall(r"\d+", colour)[:3])) > 3 * 128
