"""Which runs met a machine that was not as fast as beside the others."""

from tests.support.answers import lines, section
from tests.support.made_records import ended, made, noisy


def test_runs_on_a_slower_machine_are_marked():
    records = [noisy([10.0, 10.0]), noisy([10.0, 10.4], repeat=1), noisy([10.0, 7.0], repeat=2), noisy([10.6, 10.0], repeat=3)]
    assert section(records, "quiet").sentences == ["The machine's speed was within 5 % of its median beside 2 of 4 runs."]
    assert [(row["run"], round(row["farthest from the median (%)"])) for row in lines(records, "quiet")] == [
        ("20260101-000000-cnn-ddp-n1-r2", -30), ("20260101-000000-cnn-ddp-n1-r3", 6),
    ]  # fmt: skip
    assert lines(records, "quiet")[0]["involuntary switches"] == 10


def test_older_records_are_said_to_have_no_noise():
    records = [made(), made(repeat=1), noisy([10.0, 10.0], repeat=2), ended("failed", repeat=3)]
    assert section(records, "quiet").sentences == [
        "The machine's speed was within 5 % of its median beside 1 of 1 runs.",
        "It was not measured beside 2 runs, whose records are older.",
    ]


def of_repeats(slow):
    """Runs of two backends in 6 repeats, with so many seconds for those of the one in `slow`."""
    return [
        made(backend, repeat=repeat, seconds=seconds if repeat == slow else 10.0 + 0.05 * ((repeat + place) % 3))
        for place, (backend, seconds) in enumerate((("ddp", 20.0), ("horovod_torch", 30.0)))
        for repeat in range(6)
    ]


def test_disturbed_repeats_are_told():
    (unknown, disturbed) = section(of_repeats(slow=3), "quiet").sentences
    assert unknown.startswith("It was not measured")
    assert disturbed == (
        "Repeat 3 of cnn, weak scaling, in 20260101-000000, was disturbed: its epochs took 159 % longer at the median of its runs, "
        "from 109 % (ddp, 1 rank) to 220 % (horovod_torch, 1 rank)."
    )
    (_, quiet) = section(of_repeats(slow=None), "quiet").sentences
    assert quiet == "None of 6 repeats was disturbed, which is more than 5 % from the others of its matrix."


def of_four_ranks(speeds, repeat, hosts=("n1", "n1", "n2", "nid001240")):
    record = noisy([10.0, 10.0], repeat=repeat, num_ranks=4)
    record["machine_noise"] |= {"product_flops_per_second_by_rank": speeds, "involuntary_switches_by_rank": [0] * 4}
    record["environment"] = record["environment"] | {"host_by_rank": list(hosts)}
    return record


def test_a_slow_rank_is_named_with_its_host():
    slow, disturbed = [100.0, 99.0, 101.0, 92.0], [50.0, 99.0, 101.0, 92.0]
    records = [of_four_ranks(slow, 0), of_four_ranks(disturbed, 1), of_four_ranks(slow, 2)]
    assert "At 4 ranks, rank 3 on nid001240 is 8 % slower than the median." in section(records, "quiet").sentences
    assert not any("rank 0" in sentence for sentence in section(records, "quiet").sentences)
    quiet = [of_four_ranks([100.0, 99.0, 101.0, 98.0], repeat) for repeat in range(2)]
    assert not any("slower than the median" in sentence for sentence in section(quiet, "quiet").sentences)
