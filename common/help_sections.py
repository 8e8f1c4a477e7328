"""The help of a program in sections, each of which the first of its options begins."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_origin

import docstring_parser
import tyro

if TYPE_CHECKING:
    from common.command_line import Option


class Section(NamedTuple):
    """The heading, in the help, of an option and of those that are declared after it. Options before any heading are under "options"."""

    title: str


def in_sections(options: Iterable[Option], left_out: Collection[str]) -> type:
    """Makes the dataclass from which tyro prints the help: it has a dataclass for each section, in the order of their first options.

    `left_out`: names of options that the help does not have.
    """
    sections: dict[str, list[tuple[str, Any, Any]]] = {"": []}
    title = ""
    for option in options:
        title = next((declared.title for declared in option.declared if isinstance(declared, Section)), title)
        if option.name not in left_out:
            has_default = option.default is not dataclasses.MISSING
            default = dataclasses.field(default=option.default) if has_default else dataclasses.field()
            sections.setdefault(title, []).append((option.name, _described(option), default))
    untitled = sections.pop("")
    titled = [
        (f"section_{number}", Annotated[_dataclass(fields), tyro.conf.OmitArgPrefixes, tyro.conf.arg(name=title, help="")])
        for number, (title, fields) in enumerate(sections.items())
    ]
    return _dataclass([*untitled, *titled])


def _described(option: Option) -> Any:
    """Returns the type of an option with its help, for tyro."""
    has_metavar = tyro.conf.Positional in option.declared and get_origin(option.kind) is not Literal
    shown = tyro.conf.arg(
        help=descriptions(option.owner).get(option.name),
        # Without this, tyro shows that there is no default, as "(default: None)".
        help_behavior_hint="" if option.default in (None, "", (), dataclasses.MISSING) else None,
        metavar=_metavar(option) if has_metavar else None,
    )
    # The annotation's own help, hint and metavar come after these, and so replace them.
    return Annotated[(option.kind, shown, *option.declared)]


def _metavar(option: Option) -> str:
    """Names a positional argument, as in [SIZES…]."""
    name = option.name.upper().replace("_", "-") + ("…" if get_origin(option.kind) is tuple else "")
    return name if option.default is dataclasses.MISSING else f"[{name}]"


def _dataclass(fields: Iterable[tuple[str, Any] | tuple[str, Any, Any]]) -> type:
    return dataclasses.make_dataclass("Options", fields, kw_only=True)


@functools.cache
def descriptions(kind: type) -> dict[str, str]:
    """Returns by name the docstring, in one line, of each field that a dataclass declares."""
    return {field.arg_name: " ".join((field.description or "").split()) for field in docstring_parser.parse_from_object(kind).params}
