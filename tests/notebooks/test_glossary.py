"""The glossary: sorted and unique terms, each explained once and used by the module that it links to."""

import json
import re
from importlib import import_module
from pathlib import Path

import pytest

ENTRY = re.compile(r"^- \*\*(?P<term>[^*]+)\*\*: (?P<text>.+) \[[^\]]+\]\((?P<module>[^)]+)\)$")


@pytest.fixture(scope="module")
def modules(repository):
    return repository / "modules"


@pytest.fixture(scope="module")
def glossary(modules):
    return (modules / "glossary.md").read_text("utf-8")


@pytest.fixture(scope="module")
def entries(glossary):
    lines = [line for line in glossary.splitlines() if line.startswith("- ")]
    found = [ENTRY.match(line) for line in lines]
    assert all(found), [line for line, entry in zip(lines, found, strict=True) if not entry]
    return [entry.groupdict() for entry in found if entry]


def text_of(notebook):
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells)


def asked_by(text):
    """Return what the lessons of a notebook ask and say."""
    folders = set(re.findall(r"from (lib_dlhpc\.explore\.\w+)\.questions import ask", text))
    paths = [Path(import_module(folder).__file__).with_name("lesson.toml") for folder in folders]
    return "\n".join(path.read_text("utf-8") for path in paths)


def links(text):
    return re.findall(r"\]\(([^)#:]+)\)", text)


def test_terms_are_sorted_and_unique(entries):
    terms = [entry["term"].casefold() for entry in entries]
    assert len(terms) >= 60
    assert terms == sorted(set(terms))


def test_terms_are_below_their_letters_which_are_linked_at_the_top(glossary, entries):
    initials = [entry["term"][0].upper() for entry in entries]
    letters = list(dict.fromkeys(each if each.isalpha() else "0-9" for each in initials))
    assert re.findall(r"^## (.+)$", glossary, re.MULTILINE) == letters
    assert " · ".join(f"[{each}](#{each.lower()})" for each in letters) in glossary
    for letter, part in zip(letters, glossary.split("\n## ")[1:], strict=True):
        begun = {line[4].upper() for line in part.splitlines() if line.startswith("- ")}
        assert begun == {letter} or (letter == "0-9" and all(map(str.isdigit, begun)))


def test_an_entry_has_one_or_two_sentences(entries):
    for entry in entries:
        assert entry["text"].endswith(".")
        sentences = re.split(r"\.\s", entry["text"])
        assert len(sentences) <= 3, entry["term"]


def test_every_link_resolves(glossary, modules):
    assert links(glossary)
    for target in links(glossary):
        assert (modules / target).is_file(), target


def test_every_term_occurs_in_its_module(entries, modules):
    texts = {name: text_of(modules / name) for name in {entry["module"] for entry in entries}}
    texts = {name: text + asked_by(text) for name, text in texts.items()}
    for entry in entries:
        used = re.search(rf"\b{re.escape(entry['term'])}", texts[entry["module"]], re.IGNORECASE)
        assert used, f"{entry['term']} is not in {entry['module']}"


def test_every_module_links_to_the_glossary(modules, repository):
    notebooks = sorted(modules.glob("*.ipynb"))
    assert notebooks
    for page in [*notebooks, modules / "README.md"]:
        text = text_of(page) if page.suffix == ".ipynb" else page.read_text("utf-8")
        assert "glossary.md" in links(text), f"{page.name} has no link to glossary.md"
    assert "modules/glossary.md" in links((repository / "README.md").read_text("utf-8"))


def test_every_module_explains_a_term(entries, modules):
    explained = {entry["module"] for entry in entries}
    assert explained == {path.name for path in modules.glob("*.ipynb")}
