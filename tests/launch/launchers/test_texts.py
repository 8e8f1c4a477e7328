"""Host files in every form that people have, and what is said of those that are none."""

import pytest

from launch.launchers.texts import hosts_in
from tests.support.mistakes import refusal


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        (b"x1\nx2\n", ["x1", "x2"]),
        (b"# ours\n\nx1:4  # with slots\nx2 slots=4 max_slots=8\nx1\n", ["x1", "x2"]),
        (b"x1 slots=4\r\nx2:2\r\n", ["x1", "x2"]),
        ("\ufeffx1 # Büro\nx2".encode(), ["x1", "x2"]),
        (b"x1,10.0.0.2:4,x2.site", ["x1", "10.0.0.2", "x2.site"]),
        (b"nid[001-003,007],m[1-2]n[08,10]-ib", ["nid001", "nid002", "nid003", "nid007", "m1n08-ib", "m1n10-ib", "m2n08-ib", "m2n10-ib"]),
    ],
)
def test_hosts_are_the_names_in_a_file_each_once(text, hosts, tmp_path):
    (tmp_path / "hosts").write_bytes(text)
    assert hosts_in(tmp_path / "hosts") == hosts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"# none\n", " lists no nodes"),
        (b"x1 # B\xfcro\n", ", line 1: byte 0xfc is not UTF-8"),
        ("x1\n".encode("utf-16"), ", line 1: byte 0xff is not UTF-8"),
        (b"x1\nx2\0\n", ", line 2: a NUL byte"),
        (b"x1\n:4\n", ", line 2: ':4' is no host name"),
        (b"-oProxyCommand=x\n", ", line 1: '-oProxyCommand=x' is no host name"),
        (b"x1\nfe80::1\n", ", line 2: 'fe80::1' is an IPv6 address; give the node's name"),
        (b"[2001:db8::2]:4\n", ", line 1: '2001:db8::2' is no range of numbers"),
        (b"x[3-1]\n", ", line 1: '3-1' is no range of numbers"),
        (b"x[1-3\n", ", line 1: 'x[1-3' is no host name"),
        (b"x[1-99999][1-99999]\n", ", line 1: more than 100,000 nodes"),
        (b"x1 x2\n", ", line 1: 'x2' follows a node; write one node per line"),
        (b"\x1b[31mx1\n", ", line 1: "),
        (b"x" * 5000, ", line 1: "),
    ],
)
def test_a_file_of_no_hosts_is_refused_with_the_line(text, message, tmp_path):
    path = tmp_path / "hosts"
    path.write_bytes(text)
    text_of_refusal = refusal(hosts_in, path)
    assert text_of_refusal.startswith(f"{path}{message}")
    assert text_of_refusal.isprintable()
    assert len(text_of_refusal) < len(str(path)) + 200


@pytest.mark.parametrize(
    ("path", "message"), [("/", "Is a directory"), ("/nowhere", "No such file"), ("x" * 5000, "name too long"), ("a\0b", "null byte")]
)
def test_a_path_that_cannot_be_read_is_refused(path, message):
    assert message in refusal(hosts_in, path)
