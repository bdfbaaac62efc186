"""Stylesheets of the pages have no rule for what no page has."""

import re
from pathlib import Path

import pytest

from lib_dlhpc import explore

PAGES = Path(explore.__file__).parent
# Of libraries.
FOREIGN = re.compile(r"(jp|lm|mod|noUi|role|widget)-|jupyter|slider-container|anchor-link")
# Written with a variable.
NUMBERED = re.compile(r"lane\d|k-\w+")
COMMENT, BLOCK, CLASS = (
    re.compile(r"/\*.*?\*/", re.DOTALL),
    re.compile(r"\{[^{}]*\}"),
    r"\.([A-Za-z][\w-]*)",
)


def without_elements(style: str, pages: str) -> set[str]:
    """Return the classes of a stylesheet that the pages never write."""
    selectors = BLOCK.sub("{}", COMMENT.sub("", style))
    return {
        name
        for name in re.findall(CLASS, selectors)
        if not FOREIGN.match(name)
        and not NUMBERED.fullmatch(name)
        and not re.search(rf"(?<![\w-]){name}(?![\w-])", pages)
    }


@pytest.fixture(scope="module")
def written():
    kinds = (".py", ".js", ".html", ".j2", ".toml")
    files = (path for path in PAGES.rglob("*") if path.suffix in kinds)
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


@pytest.mark.parametrize("sheet", sorted(PAGES.rglob("*.css")), ids=lambda path: path.stem)
def test_every_class_of_a_stylesheet_is_on_some_page(sheet, written):
    assert without_elements(sheet.read_text(encoding="utf-8"), written) == set()


def test_a_rule_that_is_left_over_would_be_found():
    style = (
        ".here, .gone > a { color: red; } /* .said */ @media (max-width: 1.5em) { .gone-too {} }"
    )
    assert without_elements(style, 'class="here gone-on"') == {"gone", "gone-too"}
