"""The table has the columns of nccl-tests, and what follows from a measurement is as they define it."""

import pytest

from launch.collectives import table
from launch.collectives.measurement import Fit, Measurement, fit
from launch.forecast.network.hockney import Regime

OUT = Measurement("mpi", "all_gather", False, 4, 2**20, 2**18, [1e-3, 2e-3, 4e-3], 10, 0)
IN = OUT._replace(in_place=True, seconds=[5e-4] * 3, num_wrong=7)
# The lines of nccl-tests 2.17 (src/util.cu, writeResultHeader and the functions after it), up to their last column.
NCCL_TESTS = [
    "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong",
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)        ",
    "     1048576         65536     float    none      -1  2000.00    0.52    0.39       0   500.00    2.10    1.57       7",
]


def test_the_columns_are_those_of_nccl_tests():
    lines = [*table.header("mpi", "all_gather", 4, "1/7")[-2:], table.row(OUT, IN, 1e-4)]
    assert [line[: len(columns)] for line, columns in zip(lines, NCCL_TESTS, strict=True)] == NCCL_TESTS
    assert [line[len(columns) :].split() for line, columns in zip(lines, NCCL_TESTS, strict=True)] == [
        ["low", "high", "low", "high", "copy"],
        ["(us)", "(us)", "(us)", "(us)", "(GB/s)"],
        ["1000.00", "4000.00", "500.00", "500.00", "10.49"],
    ]
    assert len({len(line) for line in lines}) == 1


def test_what_a_library_lacks_is_not_a_number():
    assert table.row(None, IN, 1e-4).split()[5:9] == ["N/A"] * 4
    assert table.row(OUT, None, 1e-4).split()[9:13] == ["N/A"] * 4


def test_a_barrier_has_a_time_only():
    barrier = Measurement("mpi", "barrier", False, 2, 0, 0, [1e-6], 10, 0)
    assert table.row(barrier, None, None).split()[:9] == ["0", "0", "float", "none", "-1", "1.00", "0.00", "0.00", "0"]
    assert [line.split()[1] for line in table.footer([barrier], fit([barrier]))] == ["Out"]


@pytest.mark.parametrize(
    ("width", "texts"),
    [
        (7, {10.49: "10.49", 1234.56: "1234.56", 12345.67: "12345.7", 123456.7: "123457", 1234567.8: "1234568", 12345678.9: "1.2e+07"}),
        (6, {0.0: "0.00", 1234.5: "1234.5", 12345678.9: "1e+07"}),
    ],
)
def test_numbers_fit_into_their_columns_as_in_nccl_tests(width, texts):
    assert {value: table.number(value, width) for value in texts} == texts


def test_the_footer_has_the_average_the_wrong_elements_and_the_fit():
    fitted = Fit("mpi", "all_gather", False, 4, (Regime(8, 2e-6, 1e-9, 0.05), Regime(65536, 1e-5, 0.0, 0.125)))
    assert table.footer([OUT, IN], fitted) == [
        "# Out of bounds values : 7 FAILED",
        "# Avg bus bandwidth    : 0.98304",
        "# alpha + beta n       : out of place, from 8 B: alpha 2 us, beta 1 ns/B (1 GB/s), residual 5.0%",
        "# alpha + beta n       : out of place, from 64 KiB: alpha 10 us, beta 0 ns/B, residual 12.5%",
    ]
    assert "no fit: it needs 3 sizes" in table.footer([OUT], fit([OUT]))[-1]


def test_the_interval_is_said():
    assert "no interval" in table.interval_text(1)
    assert "2 repeats; low to high is their range, which has the true median with 50%" in table.interval_text(2)
    assert "with at least 95%" in table.interval_text(7)
