"""The site of `make docs`: modules to read hide their results, and its front page leads to pages that it has."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from lib_dlhpc.explore.front.page import front_page

DOCS = Path(__file__).resolve().parents[2] / "docs"
FOLDED = re.compile(r"<details>.*?</details>", re.DOTALL)


@pytest.fixture
def site(monkeypatch):
    """The page of the site by name; formulas are drawn by a package that is not in the lock."""
    monkeypatch.syspath_prepend(DOCS)
    drawn = ("<svg width='1' height='1'></svg>", (1.0, 1.0))
    monkeypatch.setattr(import_module("textbook"), "formula", lambda tex: drawn)
    build = import_module("build")
    return build.pages() | build.modules()


def test_a_module_to_read_has_each_figure_and_shows_no_answer(site):
    modules = {path: text for path, text in site.items() if path.match("modules/[0-9]*.md")}
    assert len(modules) == 14
    for path, text in modules.items():
        stored = (DOCS.parent / path.with_suffix(".ipynb")).read_text("utf-8")
        assert text.count("data:image/png") == stored.count('"image/png"') > 0
        assert "Answer:" in text and "Answer:" not in FOLDED.sub("", text)
        assert "$$" not in text


def test_what_the_front_page_leads_to_is_on_the_site(site):
    page = import_module("front").linked(front_page().read_text("utf-8"))
    pages = {path.with_suffix(".html").as_posix() for path in site}
    pages |= {"about.html", "teach.html", "favicon.svg"}
    found = set(re.findall(r'href="((?!http|#)[^"]+)"', page))
    assert found <= pages and "modules/01_one_step.html" in found
    assert "voila" not in page and "report" not in found


def test_the_front_page_may_not_lead_to_what_needs_a_server(site):
    with pytest.raises(ValueError, match="class/board"):
        import_module("front").linked('<a href="class/board">')


def test_the_site_has_syllabi_and_no_page_with_solutions(site):
    taught = {path.stem for path in site if path.parts[0] == "instructor_notes"}
    assert len([name for name in taught if name.startswith("syllabus_")]) == 6
    assert not {"grading", "readings"} & taught
    assert not any(name[:2].isdigit() or name.startswith("lab_") for name in taught)
