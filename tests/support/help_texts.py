"""The help of a program, as it is printed where the output takes ASCII only."""

import re

SECTION = re.compile(r"^ (\S.*?) *\n -+ *\n((?:  .*\n)*)", re.MULTILINE)
OPTION = re.compile(r"^  (\S.*\n(?:   .*\n)*)", re.MULTILINE)


def sections_of(text):
    """Returns {title: {option: its help in one line}} of a help."""
    sections = {title: [" ".join(entry.split()) for entry in OPTION.findall(entries)] for title, entries in SECTION.findall(text)}
    return {title: {re.match(r"[\w-]*", entry)[0]: entry for entry in entries} for title, entries in sections.items()}
