"""Text files of users, read with one line about what is wrong and where; and the nodes of a host file."""

import re
from pathlib import Path

from common.errors import UserError
from common.process import slurm

# A name or an IPv4 address. Launchers take what follows a colon for a number of slots, and what begins with a dash for an option.
HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252})")
VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
SLOTS = re.compile(r":\d{1,9}$")
MAX_NODES = 100_000
# The number of characters that a message shows of a name.
MAX_SHOWN = 60


def read(path: str | Path) -> str:
    """Reads the text of a file in UTF-8, without a byte order mark. Raises UserError, with the line, for any other content."""
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as problem:
        raise UserError(f"{str(path)[:MAX_SHOWN]!r}: {getattr(problem, 'strerror', None) or problem}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise UserError(
            f"{path}, {_line_of(data, problem.start)}: byte {data[problem.start]:#04x} is not UTF-8; save it as UTF-8"
        ) from None
    if "\0" in text:
        raise UserError(f"{path}, {_line_of(data, data.index(0))}: a NUL byte; it must be a text file in UTF-8")
    return text


def _line_of(data: bytes, place: int) -> str:
    return f"line {data.count(10, 0, place) + 1}"


def expect_variable(name: str, place: str) -> None:
    """Raises UserError where this cannot be the name of a variable, with the place where it stands."""
    if not VARIABLE.fullmatch(name):
        raise UserError(f"{place}: {name[:MAX_SHOWN]!r} is no name of a variable; use letters, digits and _, not a digit first")


def hosts_in(path: str | Path) -> list[str]:
    """Reads the nodes of a host file, each once. A line has one, or a list such as `n[01-04],m1`. Raises UserError if there are none."""
    names: dict[str, None] = {}
    for number, line in enumerate(read(path).splitlines(), 1):
        place = f"{path}, line {number}"
        words = line.partition("#")[0].split()
        if further := [word for word in words[1:] if "=" not in word]:
            raise UserError(f"{place}: {further[0][:MAX_SHOWN]!r} follows a node; write one node per line, such as node1 or node1 slots=4")
        try:
            for item in slurm.hosts(words[0]) if words else ():
                names[_host(item, place)] = None
                if len(names) > MAX_NODES:
                    raise UserError(f"{place}: more than {MAX_NODES:,} nodes; {words[0][:MAX_SHOWN]!r} is too long a list")
        except ValueError as problem:
            raise UserError(f"{place}: {problem}") from None
    if not names:
        raise UserError(f"{path} lists no nodes; write one per line")
    return list(names)


def _host(item: str, place: str) -> str:
    name = SLOTS.sub("", item)
    if not HOST.fullmatch(name):
        hint = "an IPv6 address; give the node's name" if item.count(":") > 1 else "no host name; write one node per line, such as node1"
        raise UserError(f"{place}: {item[:MAX_SHOWN]!r} is {hint}")
    return name
