"""The paper says what the library computes, and cites what it lists."""

import re
import runpy

import pytest
from published_rows import validate_once

SECTIONS = ["Summary", "Statement of need", "Learning objectives", "References"]


@pytest.fixture(scope="module")
def paper(repository, tmp_path_factory):
    folder = tmp_path_factory.mktemp("paper")
    with pytest.MonkeyPatch.context() as patch:
        validate_once(patch)
        runpy.run_path(str(repository / "docs" / "paper" / "build.py"))["main"](folder)
    return folder


def test_it_has_what_the_journal_asks_for(paper):
    _, header, body = (paper / "paper.md").read_text("utf-8").split("---\n", 2)
    for field in ("title", "tags", "authors", "affiliations", "date", "bibliography"):
        assert re.search(rf"^{field}:", header, re.M), field
    sections = re.findall(r"^# (.+)", body, re.M)
    assert [each for each in sections if each in SECTIONS] == SECTIONS
    assert 250 < len(body.split()) < 2000


def test_every_number_is_filled_in(paper):
    text = (paper / "paper.md").read_text("utf-8")
    assert not re.findall(r"\{(?!fig:)[^}]*\}?", re.sub(r"\\label\{[^}]*\}", "", text))
    assert re.search(r"predicts \d{3} published results", text)


def test_what_is_cited_is_listed_and_what_is_listed_is_cited(paper):
    text = (paper / "paper.md").read_text("utf-8")
    bibliography = (paper / "paper.bib").read_text("utf-8")
    cited = set(re.findall(r"@(\w+)", text))
    assert cited == set(re.findall(r"^@\w+\{(\w+),", bibliography, re.M))
    assert bibliography.count("  doi = {10.") == len(cited)


def test_figures_are_pictures_and_each_is_referred_to(paper):
    text = (paper / "paper.md").read_text("utf-8")
    for label, name in re.findall(r"\\label\{(fig:\w+)\}\]\((\S+)\)", text):
        assert (paper / name).read_bytes().startswith(b"\x89PNG")
        assert rf"\autoref{{{label}}}" in text
    assert text.count("![") == 2
