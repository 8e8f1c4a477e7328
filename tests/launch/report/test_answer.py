"""The answer, as one screen and as JSON, on the committed records and on made ones."""

import io
import json
from functools import cache

import pytest
from rich.console import Console

from common.record.definition import ENDED_BY_JOB
from launch.report.answer import as_json
from launch.report.export import screen
from launch.report.report import report_of
from launch.report.runs import collect
from tests.support.answers import answered
from tests.support.made_records import ended, made, not_reached, repeats
from tests.support.running import ROOT

REFERENCE = ROOT / "results" / "reference"
LINKS = ["page: results/here/20260101-000000.html", "all tables: python -m launch.compare results/here --full"]
# One run each, six repeats, approximate backends, and a target that was missed.
COMMITTED = {
    "one run each": "two-cores/20261125-185108*",
    "six repeats": "zen5/*",
    "approximate": "approximate/*",
    "missed": "zen5-mkl/*",
}

MANY = ("ddp", "ddp@mpi", "ddp@fp16", "fsdp", "deepspeed_zero", "deepspeed_zero@2", "deepspeed_zero@3", "horovod_torch",
         "horovod_torch@gloo", "horovod_tf", "horovod_tf@gloo", "horovod_keras", "horovod_keras@gloo", "gradient_averaging",
         "gradient_averaging@mpi", "zero_redundancy")  # fmt: skip


@cache
def committed(name):
    return report_of(*collect(sorted(REFERENCE.glob(COMMITTED[name])))).answer


def of(made_records):
    return answered(made_records).answer


def shown(answer, width=100):
    return [line.plain for line in screen.lines(answer, LINKS, width)]


@pytest.mark.parametrize("name", COMMITTED)
def test_the_screen_has_30_lines_of_whole_sentences_counts_the_others_once_and_breaks_all_but_the_links(name):
    for width in (50, 80, 100):
        lines = shown(committed(name), width)
        assert len(lines) <= 30
        assert max(map(len, lines[:-2])) <= width
        assert lines[-2:] == LINKS
        assert any(" fastest" in line for line in lines)
    answer = committed(name)
    text = " ".join(line.strip() for line in lines)
    sentences = [*answer.reliability, *(cause.text for cause in answer.causes)]
    num_left = sum(" ".join(sentence.split()) not in text for sentence in sentences)
    counted = {0: None, 1: "1 more sentence is in --full."}.get(num_left, f"{num_left} more sentences are in --full.")
    assert text.count("in --full.") == (counted is not None)
    assert counted is None or counted in text


def test_of_many_backends_distributed_ones_are_shown_before_variants_and_plain_training_and_the_others_are_counted():
    distributed = ["horovod_tf", "horovod_keras", "horovod_torch", "ddp", "deepspeed_zero"]
    variants = ["ddp@mpi", "horovod_torch@gloo", "horovod_tf@gloo", "deepspeed_zero@2", "deepspeed_zero@3", "ddp@fp16", "ddp@bf16"]
    runs = [
        made(seconds=5.0 + place, backend=name, workload=workload, num_ranks=num_ranks, workload_digest=f"{number:064d}")
        for number, workload in enumerate(("cnn", "transformer"))
        for num_ranks, names in {1: ["single", "single_tf", "single_keras"], 2: [*variants, *distributed]}.items()
        for place, name in enumerate(names)
    ]
    lines = shown(of(runs))
    assert len(lines) <= 30
    assert sum(line.startswith("  and ") and " more: " in line for line in lines) == 2
    begin, end = (next(place for place, line in enumerate(lines) if line.startswith(name)) for name in ("cnn", "transformer,"))
    names = [line.split()[0] for line in lines[begin + 1 : end]]
    # The fastest of the largest size is always there.
    assert names[0] == "ddp@mpi"
    assert set(distributed) < set(names)


def test_one_run_each_is_no_verdict_and_the_screen_says_what_would_give_one():
    answer = of([made(seconds=seconds, backend=name, num_ranks=2) for seconds, name in ((8.0, "horovod_tf"), (10.0, "ddp"))])
    text = "\n".join(shown(answer))
    doubt = "ne run each: the order may change; --repeats 6 gives a verdict"
    assert f"o{doubt}" in text
    assert "Next: --repeats 6 for a verdict" in text
    # The page begins with the doubt.
    assert answer.sentences[0] == f"O{doubt}."


def test_repeats_give_marks_and_intervals():
    fast, slow = [8.0, 8.1, 8.2, 8.0, 8.1, 8.2], [10.0, 10.2, 10.1, 10.3, 10.0, 10.1]
    runs = [*repeats(fast, backend="horovod_tf"), *repeats(slow), *repeats([*fast[1:], 8.0], backend="horovod_torch")]
    answer = of(runs)
    (group,) = answer.rankings[0].groups
    assert [result.verdict for result in group.results][::2] == ["fastest", "slower"]
    assert [result.backend for result in group.tied] == [group.results[1].backend]
    lines = shown(answer)
    assert "6 runs each" in lines[1]
    assert "< slower" in lines[1]
    (line,) = (line for line in lines if line.startswith("  ddp "))
    assert " < (" in line


def test_startup_is_a_column_beside_the_time_to_solution():
    startup = {"launch_seconds": 0.5, "import_seconds": 3.0, "init_seconds": 1.0}
    answer = of([made(seconds=8.0, **startup), made(seconds=10.0, backend="horovod_torch", **(startup | {"init_seconds": 9.0}))])
    assert [row.split()[1:3] for row in shown(answer) if row.startswith("  ")][:2] == [["8.00", "+4.5"], ["10.00", "+12"]]
    assert json.loads(as_json("here", answer))["comparisons"][0]["backends"][0]["startup_seconds"] == 4.5


def test_failed_runs_and_missed_targets_are_named_with_their_reason():
    runs = [made(), ended("failed", backend="deepspeed_zero"), not_reached(backend="horovod_torch")]
    lines = shown(of(runs))
    text = " ".join(lines)
    assert "Of 3 runs 1 did not complete and 1 missed the target." in text
    assert "deepspeed_zero-n1-r0: failed, it broke" in text
    (line,) = (line for line in lines if line.startswith("  horovod_torch"))
    assert "not reached (0.9)" in line


def test_where_no_run_reached_the_target_seconds_per_epoch_are_compared():
    answer = of([not_reached(), not_reached(backend="single")])
    assert answer.certainty == "no two times to compare; seconds per epoch are shown"
    assert [line.split(",")[1] for line in shown(answer) if "not reached" in line] == [" 4.50 s an epoch"] * 2
    assert answer.quotation.endswith(": no backend reached the target, single has the shortest epochs on cnn at 1 rank.")
    of_longer_epochs = of([not_reached(), not_reached(backend="single", seconds=20.0)])
    assert of_longer_epochs.quotation.endswith(": no backend reached the target, ddp has the shortest epochs on cnn at 1 rank.")
    none = of([ended("failed"), ended("failed", backend="single")])
    assert none.certainty == "nothing to compare"
    assert none.quotation.endswith(": no backend completed on cnn at 1 rank.")


@pytest.mark.parametrize(
    ("records", "advice"),
    [
        ([made(), made(backend="horovod_tf", seconds=12.0)], ["--repeats 6 for a verdict"]),
        ([*repeats([8.0] * 6), *repeats([12.0] * 6, backend="horovod_tf")], []),
        ([made(), ended("failed", backend="fsdp")], ["--check, and --resume once the error of fsdp is mended"]),
        ([made(), ended("timeout", backend="fsdp")], ["--resume with a longer --time-limit for fsdp, which reached it"]),
        ([made(), ended("started", backend="fsdp")], ["--resume for fsdp, which did not end"]),
        ([made(), ended("failed", backend="fsdp") | {"error": ENDED_BY_JOB}], ["--resume for fsdp, which did not end"]),
        ([made(), not_reached(backend="fsdp")], ["more --epochs for fsdp, which missed the target"]),
        (
            [made(seconds=9.0 + place, backend=name, num_ranks=2) for place, name in enumerate(MANY)],
            ["--repeats 6 --backends ddp,ddp@mpi,fsdp for a verdict"],
        ),
    ],
    ids=[
        "one run",
        "six repeats",
        "failure",
        "time limit",
        "interrupted",
        "time limit of the job",
        "missed target",
        "16 backends",
    ],
)
def test_every_situation_has_its_next_step(records, advice):
    assert of(records).advice == advice


def test_oversubscribed_sizes_are_left_out_where_others_have_cores():
    shared = {"num_ranks": 8, "oversubscribed": True}
    text = "\n".join(shown(of([made(), made(backend="single"), made(**shared)])))
    assert "8 ranks are more than the cores" in text
    assert "8 ranks  " not in text
    assert "More ranks than cores: not a scaling measurement." in "\n".join(shown(of([made(**shared)])))


def test_the_causes_have_their_evidence():
    answer = committed("six repeats")
    assert {cause.kind for cause in answer.causes} == {"products", "framework", "library", "transport", "step"}
    assert answer.causes_at == "2 ranks, on cnn and transformer"
    transport = next(cause for cause in answer.causes if cause.kind == "transport")
    assert transport.text.startswith("gloo over mpi, with horovod_torch: +")
    assert list(transport.ratios) == ["cnn", "transformer"]
    assert "transformer" not in transport.text
    # On the CNN it is DDP that takes longer, by less than what is told.
    causes = [cause for cause in answer.causes if cause.text.startswith("Horovod over ddp, with mpi")]
    assert [(list(cause.ratios), cause.text.endswith(" on transformer")) for cause in causes] == [(["transformer"], True)]


def test_json_has_the_first_the_ratio_the_interval_the_verdict_and_the_causes():
    document = json.loads(as_json("here", committed("six repeats")))
    comparison = document["comparisons"][0]
    fastest, second, *_ = comparison["backends"]
    assert (comparison["first"], fastest["backend"], fastest["verdict"]) == ("horovod_tf", "horovod_tf", "fastest")
    assert (second["backend"], second["verdict"]) == ("horovod_keras", "slower")
    assert second["interval"][0] < second["ratio"] < second["interval"][1]
    assert {cause["kind"] for cause in document["causes"]} >= {"products", "transport"}
    assert document["quotation"] == committed("six repeats").quotation


def test_one_sentence_to_paste_has_the_machine_who_by_how_much_and_how_sure():
    assert committed("six repeats").quotation.startswith("Tandem (")
    assert committed("six repeats").quotation.endswith(
        "(AMD EPYC, 2 cores), seconds per epoch: horovod_tf before horovod_keras by 8 % (3 to 13) on cnn at 2 ranks; "
        "horovod_tf before horovod_keras by 9 % (2 to 16) on transformer at 2 ranks (6 runs each, 95 % intervals)."
    )
    equal = "horovod_torch before ddp, with no difference shown (10 % (-4 to 24)), on cnn at 2 ranks (6 runs each, 95 % intervals)."
    assert committed("approximate").quotation.endswith(equal)


def test_the_answer_in_plain_words_has_a_line_for_each_workload():
    lines = committed("six repeats").sentences
    assert lines[0] == (
        "cnn, 2 ranks: horovod_tf reached the target first, in 1.12 s. "
        "horovod_keras's epochs take 8 % (3 to 13) longer, horovod_torch's 20 % (14 to 25), deepspeed_zero's 94 % (84 to 105). "
        "With start-up ddp@mpi is first, in 3.54 s."
    )
    assert "horovod_keras's epochs take 9 % (2 to 16) longer, ddp@mpi's 30 % (" in lines[1]


def test_outside_a_terminal_there_are_no_colours_and_on_a_wide_one_100_columns():
    texts = []
    for is_terminal in (False, True):
        stream = io.StringIO()
        screen.show(committed("one run each"), LINKS, Console(file=stream, force_terminal=is_terminal, width=300))
        texts.append(stream.getvalue())
    assert "\x1b" not in texts[0]
    assert max(map(len, texts[0].splitlines())) <= 100
    assert "\x1b" in texts[1]


def test_text_of_records_cannot_send_control_codes():
    text = "\n".join(shown(of([made(), ended("failed", backend="fsdp") | {"error": "\x1b[31mred"}])))
    assert "red" in text
    assert "\x1b" not in text
