"""What the pages point to is there: files, modules, options, links, sections, and in the guides every name."""

import re
from functools import cache

import pytest

from common import backends
from common.workloads import WORKLOADS
from tests.support.running import ROOT

ROOMS = ("common", "frameworks", "launch", "tests", "results")
# Beside results/reference lie the user's own results.
FILES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*", *(f"{room}/**/*" for room in ROOMS[:-1]), "results/*", "results/reference/*")
    for path in ROOT.glob(pattern)
    if path.is_file()
)
PAGES = [path for path in FILES if path.endswith(".md")]
SOURCES = [path for path in FILES if path.endswith((".py", ".sh", ".c", ".h", ".yml", ".toml", ".pbs", ".sbatch"))]
FILE_NAME = re.compile(rf"(?<![\w./-])(?:[\w./-]*\w\.(?:py|sh|c|h|md|yml)(?![\w.])|(?:{'|'.join(ROOMS)})/[\w./-]*\w)")
# Files of the user, of the system, and of a library.
FOREIGN_FILES = {"mpi.h"}
# Options of the programs that start ranks, horovodrun among them.
FOREIGN_OPTIONS = {"--max-restarts", "--min-np", "--host-discovery-script"}


@cache
def text_of(path):
    """The text of a file, without the list of changes that names what is gone."""
    return re.sub(r"^Removed\n(?:[- ].*\n)*", "", (ROOT / path).read_text(), flags=re.MULTILINE)


@cache
def found_in_sources(pattern):
    return {match for path in SOURCES for match in re.findall(pattern, text_of(path), re.MULTILINE)}


@cache
def anchors_of(path):
    """The anchors that GitHub gives the headings of a page."""
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings_of(path)}


def headings_of(path):
    return re.findall(r"^#+ (.*)$", text_of(path), re.MULTILINE)


def code_of(text):
    """The inline code of a page."""
    return re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def missing_files(page):
    """Files named in inline code: a path from the root, or the end of a path."""
    names = {name for code in code_of(text_of(page)) for name in FILE_NAME.findall(code)} - FOREIGN_FILES
    return [name for name in sorted(names) if not (is_path(name) if name.split("/")[0] in ROOMS else is_end_of_path(name))]


def is_path(name):
    return (ROOT / name).exists() or "MACHINE" in name


def is_end_of_path(name):
    return any(f"/{path}".endswith(f"/{name}") for path in FILES)


def missing_modules(page):
    """Dotted names of modules, and of what stands in one."""
    names = re.findall(r"(?<![\w./])(?:common|frameworks|launch|tests)(?:\.\w+)+", text_of(page))
    return [name for name in names if name not in FOREIGN_FILES and not is_in_module(*name.split("."))]


def is_in_module(*parts):
    """Whether the parts, joined by slashes, are a room, or those of a module and then words that stand in it."""
    ends = [end for end in range(len(parts), 1, -1) if "/".join(parts[:end]) + ".py" in FILES]
    words = re.findall(r"\w+", text_of("/".join(parts[: ends[0]]) + ".py")) if ends else []
    return "/".join([*parts, "__init__.py"]) in FILES or bool(ends and set(parts[ends[0] :]) <= set(words))


def missing_options(page):
    """Options that no program has: neither written out in the code nor a field of a dataclass of settings."""
    options = {option for code in code_of(text_of(page)) for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", code)}
    fields = {f"--{sign}{name.replace('_', '-')}" for name in found_in_sources(r"^ {4}(\w+): ") for sign in ("", "no-")}
    return sorted(options - found_in_sources(r"--[a-z][\w-]*") - fields - FOREIGN_OPTIONS)


def broken_links(page):
    broken = []
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", text_of(page)):
        linked = ((ROOT / page).parent / target).resolve() if target else ROOT / page
        if not linked.exists() or (anchor and anchor not in anchors_of(str(linked.relative_to(ROOT)))):
            broken.append(f"{target}#{anchor}")
    return broken


@pytest.mark.parametrize("page", PAGES)
def test_every_file_module_option_and_link_of_a_page_exists(page):
    assert (missing_files(page), missing_modules(page), missing_options(page), broken_links(page)) == ([], [], [], [])


def test_every_name_in_a_guide_stands_in_the_code():
    guides = [
        section for page in PAGES for section in re.split(r"^(?=## )", text_of(page), flags=re.MULTILINE) if section.startswith("## Add a")
    ]
    names = {code for guide in guides for code in code_of(guide) if re.fullmatch(r"[A-Za-z_]\w*", code)}
    assert len(guides) >= 6
    assert sorted(names - found_in_sources(r"[A-Za-z_]\w*")) == []


def test_the_backends_of_every_command_are_there_and_every_workload_is_on_its_page():
    named = {
        name
        for page in PAGES
        for names in re.findall(r"--backends ([\w@,]+)", text_of(page).replace("\\", ""))
        for name in names.split(",")
    }
    # The last one is a file that the reader makes. A name that is none, or a variant that is none, is refused.
    assert backends.chosen(",".join(named - {"all", "ddp_views"}))
    assert [name for name in WORKLOADS if f"`{name}`" not in text_of("common/README.md")] == []


def test_every_page_and_section_that_the_code_names_exists():
    named = {match for path in SOURCES for match in re.findall(r'((?:\w+/)*[A-Z]+\.md)(?:, "([^"]+)")?', text_of(path))}
    pages = {page: section for page, section in named if page.split("/")[0] in ROOMS}
    assert [page for page in sorted(pages) if page not in PAGES] == []
    assert [(page, section) for page, section in pages.items() if section and section not in headings_of(page)] == []
