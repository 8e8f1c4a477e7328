"""What is replaced for a while is restored whatever happens."""

import contextlib
from types import ModuleType

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


def test_an_object_a_class_and_a_module_are_replaced_at_once_and_restored_also_after_an_exception():
    library, module = Library(), ModuleType("library")
    module.reduce = original = object()
    of_class = (Library, "rate", 2), (Library, "fixed", lambda _: "moved")
    replacements = (library, "name", "other"), (library, "reduce", lambda: "kept"), *of_class, (module, "reduce", None)
    with contextlib.suppress(ArithmeticError), replaced(*replacements):
        assert (library.name, library.reduce(), library.rate, library.fixed(), module.reduce) == ("other", "kept", 2, "moved", None)
        with replaced((library, "name", "inner"), (library, "name", "innermost")):
            assert library.name == "innermost"
        assert library.name == "other"
        raise ArithmeticError
    # A static method stays one.
    assert (library.name, library.reduce(), library.rate, library.fixed(), module.reduce) == ("own", "reduced", 1, "fixed", original)
    # Its method is that of its class again.
    assert vars(library) == {"name": "own"}
