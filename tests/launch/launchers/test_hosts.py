"""Host files in every form that people have, and ranks on several nodes under a launcher that knows none."""

import pytest

from launch.launchers import hosts
from launch.launchers.commands import LAUNCHERS, Launcher, Start
from launch.launchers.hosts import hosts_in, unknown_nodes_problem
from tests.support.mistakes import refusal, refused

VARIABLES = LAUNCHERS["mpich"].nodes_variables
# The second is of a batch system without a row in BATCH_SYSTEMS.
SLURM, UNKNOWN = {"SLURM_JOB_ID": "7"}, {"UNKNOWN_JOB_ID": "7"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (b"x1\nx2\n", ["x1", "x2"]),
        (b"# ours\n\nx1:4  # with slots\r\nx2 slots=4 max_slots=8\nx1\n", ["x1", "x2"]),
        ("\ufeffx1 # Büro\nx2".encode(), ["x1", "x2"]),
        (b"x1,10.0.0.2:4,x2.site", ["x1", "10.0.0.2", "x2.site"]),
        (b"nid[001-003,007],m[1-2]n[08,10]-ib", ["nid001", "nid002", "nid003", "nid007", "m1n08-ib", "m1n10-ib", "m2n08-ib", "m2n10-ib"]),
    ],
)
def test_hosts_are_the_names_in_a_file_each_once(text, names, tmp_path):
    (tmp_path / "hosts").write_bytes(text)
    assert hosts_in(tmp_path / "hosts") == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"# none\n", " lists no nodes"),
        ("x1\n".encode("utf-16"), ", line 1: byte 0xff is not UTF-8"),
        (b"x1\nx2\0\n", ", line 2: 'x2\\x00' is no host name"),
        (b"-oProxyCommand=x\n", ", line 1: '-oProxyCommand=x' is no host name"),
        (b"x1\nfe80::1\n", ", line 2: 'fe80::1' is no host name"),
        (b"[2001:db8::2]:4\n", ", line 1: '2001:db8::2' is no range of numbers"),
        (b"x" + b"[1-9]" * 12, ", line 1: 'x[1-9][1-9][1-9][1-9][1-9][1-9][1-9][1-9' are more than 100,000 nodes"),
        (b"x[1-3\n", ", line 1: 'x[1-3' is no host name"),
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


@pytest.mark.parametrize(("path", "message"), [("/", "Is a directory"), ("x" * 5000, "name too long"), ("a\0b", "null byte")])
def test_a_path_that_cannot_be_read_is_refused(path, message):
    assert message in refusal(hosts_in, path)


@pytest.mark.parametrize(
    ("environ", "srun", "parts"),
    [
        ({}, None, ["2 nodes are planned, and mpich knows none: all ranks would be on one", "--hosts FILE"]),
        (SLURM, None, ["in this job of Slurm", "put srun into PATH"]),
        ({"PBS_JOBID": "7", "PBS_NODEFILE": "/n"}, None, ["in this job of PBS", '--hosts "$PBS_NODEFILE"', "PALS"]),
        (UNKNOWN, None, ["--hosts FILE"]),
    ],
)
def test_the_cause_is_named_with_what_to_give(environ, srun, parts, monkeypatch):
    monkeypatch.setattr(hosts, "which", lambda _: srun)
    text = unknown_nodes_problem(2, "mpich", VARIABLES, (), environ)
    assert text is not None
    assert [part for part in parts if part not in text] == []


@pytest.mark.parametrize(
    ("num_nodes", "arguments", "environ", "srun"),
    [
        (1, (), UNKNOWN, None),
        (2, (), SLURM, "/bin/srun"),
        (2, ("-f", "hosts"), UNKNOWN, None),
        (2, ("-hosts", "a,b"), {}, None),
        (2, (), {VARIABLES[0]: "/hosts"}, None),
    ],
)
def test_a_launcher_that_is_given_its_nodes_or_needs_none_is_not_refused(num_nodes, arguments, environ, srun, monkeypatch):
    monkeypatch.setattr(hosts, "which", lambda _: srun)
    assert unknown_nodes_problem(num_nodes, "mpich", VARIABLES, arguments, environ) is None


@pytest.mark.parametrize("name", [name for name, kind in LAUNCHERS.items() if kind.places != "node"])
def test_only_a_launcher_of_a_batch_system_starts_ranks_on_nodes_that_are_not_listed(name, monkeypatch):
    nodes_variables = LAUNCHERS[name].nodes_variables
    variables = {variable for kind in LAUNCHERS.values() for variable in kind.nodes_variables}
    for variable in (*variables, *(system.variable for system in hosts.BATCH_SYSTEMS.values())):
        monkeypatch.delenv(variable, raising=False)
    start = Start(Launcher(name, "it"), 8, 4, 1, ("python",), {})
    if LAUNCHERS[name].places == "cluster":
        assert "python" in start.argv()
        return
    # Those of other launchers it does not read: the MPI Operator of Kubernetes sets one of Open MPI for any.
    for variable in variables - set(nodes_variables):
        monkeypatch.setenv(variable, "/hosts")
    with refused(f"2 nodes are planned, and {name} knows none"):
        start.argv()
    for variable in nodes_variables:
        with monkeypatch.context() as alone:
            alone.setenv(variable, "/hosts")
            assert "python" in start.argv()
