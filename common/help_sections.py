"""The help of a program in sections, each of which the first of its options begins."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

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
    description = descriptions(option.owner).get(option.name, "")
    # "(default: None)" says nothing where the description has the default.
    hint = "" if option.default is None and "Default:" in description else None
    # What the annotation has of these goes before.
    return Annotated[(option.kind, tyro.conf.arg(help=description or None, help_behavior_hint=hint), *option.declared)]


def _dataclass(fields: Iterable[tuple[str, Any] | tuple[str, Any, Any]]) -> type:
    return dataclasses.make_dataclass("Options", fields, kw_only=True)


@functools.cache
def descriptions(kind: type) -> dict[str, str]:
    """{name: docstring in one line} of the fields that a dataclass declares."""
    return {field.arg_name: " ".join((field.description or "").split()) for field in docstring_parser.parse_from_object(kind).params}
