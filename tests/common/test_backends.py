"""The declaration of a backend: each field is documented where it stands, and a file with another one is refused."""

import ast
import inspect

from common import backends
from tests.support.mistakes import refused


def test_every_field_of_the_declaration_has_a_docstring_of_its_own():
    (declaration,) = ast.parse(inspect.getsource(backends.Backend)).body
    documented = []
    for one, after in zip(declaration.body, declaration.body[1:], strict=False):
        if isinstance(one, ast.AnnAssign):
            assert isinstance(after, ast.Expr), one.target.id
            assert after.value.value.endswith("."), one.target.id
            documented.append(one.target.id)
    assert tuple(documented) == backends.Backend._fields


def test_a_field_that_is_not_there_is_refused(tmp_path):
    (tmp_path / "other.py").write_text("from common.backends import Backend\n\nBACKEND = Backend(fast=True)\n")
    with refused("line 3: BACKEND cannot be read", "fast"):
        backends.declared(tmp_path)
