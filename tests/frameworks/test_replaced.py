"""What is replaced for a while is restored whatever happens."""

from types import ModuleType

import pytest

from frameworks.shared.replaced import replaced


class Library:
    rate = 1

    def __init__(self):
        self.name = "own"

    def reduce(self):
        return "reduced"

    @staticmethod
    def fixed():
        return "fixed"


def test_an_object_a_class_and_a_module_are_replaced_at_once_and_restored():
    library, module = Library(), ModuleType("library")
    module.reduce = original = object()
    of_class = (Library, "rate", 2), (Library, "fixed", lambda _: "moved")
    with replaced((library, "name", "other"), (library, "reduce", lambda: "kept"), *of_class, (module, "reduce", None)):
        assert (library.name, library.reduce(), library.rate, library.fixed(), module.reduce) == ("other", "kept", 2, "moved", None)
    # A static method stays one.
    assert (library.name, library.reduce(), library.rate, library.fixed(), module.reduce) == ("own", "reduced", 1, "fixed", original)
    # Its method is that of its class again.
    assert vars(library) == {"name": "own"}


def test_it_is_restored_after_an_exception_and_after_another_replacement_within():
    library = Library()

    def fail():
        with replaced((library, "name", "outer")):
            with replaced((library, "name", "inner"), (library, "name", "innermost")):
                assert library.name == "innermost"
            assert library.name == "outer"
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fail()
    assert library.name == "own"
