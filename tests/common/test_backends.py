"""The declaration of a backend: each field is documented where it stands, and a file with another one is refused."""

import ast
import inspect
import itertools

from common import declarations
from tests.support.mistakes import refused


def test_every_field_of_the_declaration_has_a_docstring_of_its_own():
    (declaration,) = ast.parse(inspect.getsource(declarations.Backend)).body
    documented = []
    for statement, after in itertools.pairwise(declaration.body):
        if isinstance(statement, ast.AnnAssign):
            assert isinstance(after, ast.Expr), statement.target.id
            assert after.value.value.endswith("."), statement.target.id
            documented.append(statement.target.id)
    assert tuple(documented) == declarations.Backend._fields


def test_a_field_that_is_not_there_is_refused(tmp_path):
    (tmp_path / "other.py").write_text("from common.declarations import Backend\n\nBACKEND = Backend(fast=True)\n")
    with refused("line 3: BACKEND cannot be read", "fast"):
        declarations.declared(tmp_path)
