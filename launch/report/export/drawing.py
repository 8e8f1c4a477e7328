"""Reads a call of vl_convert from standard input, as JSON, and writes what the function returns, without dumping memory if V8 fails."""

import contextlib
import json
import sys

import vl_convert


def main() -> None:
    """Calls the function."""
    # Windows has no such limit.
    with contextlib.suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    call = json.load(sys.stdin)
    drawn = getattr(vl_convert, call["function"])(**call["arguments"])
    sys.stdout.buffer.write(drawn.encode() if isinstance(drawn, str) else drawn)


if __name__ == "__main__":
    main()
