"""The declaration of a backend: a file with a field that is not there is refused."""

from common import declarations
from tests.support.mistakes import refused


def test_a_field_that_is_not_there_is_refused(tmp_path):
    (tmp_path / "other.py").write_text("from common.declarations import Backend\n\nBACKEND = Backend(fast=True)\n")
    with refused("line 3: BACKEND cannot be read", "fast"):
        declarations.declared(tmp_path)
