"""Texts as pages: every relative link of a text and of a notebook leads to a page that is there."""

import asyncio
import errno
import json
import re
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from tornado.web import HTTPError
from voila.app import Voila

from lib_dlhpc.explore.course import LABS, PATH
from lib_dlhpc.explore.front.shell import PLACES, error_page
from lib_dlhpc.explore.front.teach import TEXTS, teach_page
from lib_dlhpc.explore.server.application import SHORT, Server
from lib_dlhpc.explore.server.markdown import ADDRESS, Markdown, found, notes_of, page
from lib_dlhpc.explore.server.pages import Page
from lib_dlhpc.explore.server.serve import voila_configuration

LINK = re.compile(r'<a href="(?!https?:|mailto:|#|data:)([^"#?]+)')


@pytest.fixture(scope="module")
def is_there(repository):
    """Whether an address below the base leads to a page of the course."""

    def there(address):
        text = re.fullmatch(ADDRESS, address)
        if text:
            return found(repository / "modules", *text.groups()) is not None
        if address.startswith("voila/render/"):
            return (repository / "modules" / address.removeprefix("voila/render/")).is_file()
        return address in ("", "teach", "report", "class/board")

    return there


@pytest.mark.parametrize("place", ["modules", "labs", "docs", "instructor_notes"])
def test_links_of_texts_lead_to_pages(repository, place, is_there):
    for file in sorted((repository / place).rglob("*.md")):
        html = page(file, repository / "modules", "/", notes=True).decode()
        for address in LINK.findall(html):
            assert is_there(address.removeprefix("/")), (file, address)


def test_links_to_a_section_lead_to_a_heading(repository):
    """Anchors are those of GitHub: lower case, hyphens for spaces."""
    checked = 0
    for file in sorted((repository / "docs").rglob("*.md")):
        for to, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", file.read_text("utf-8")):
            html = page((file.parent / to) if to else file, repository / "modules", "/").decode()
            assert f' id="{anchor}">' in html, (file, to, anchor)
            checked += 1
    assert checked > 10


def test_a_lab_leads_back_to_all_labs_and_to_its_module(repository):
    (module,) = (each for each in PATH if "05_split_convolution" in each.labs)
    for name, leads in (("05_split_convolution/README.md", True), ("README.md", False)):
        html = page(repository / "labs" / name, repository / "modules", "/").decode()
        above = html.split("<main>")[1].split("<h1")[0]
        assert ('href="/voila/labs/README.md"' in above) == (module.file in above) == leads


def test_short_addresses_and_what_an_error_links_lead_to_pages(is_there):
    places = [to for _, to, _ in PLACES if not to.startswith("#")]
    assert all(map(is_there, (*SHORT.values(), *places)))
    assert "glossary.md" in error_page("404", "x", "y", "/", of_course=True)
    assert "glossary.md" not in error_page("404", "x", "y", "/")


def test_a_table_within_a_list_is_a_table(repository, tmp_path):
    text = tmp_path / "text.md"
    text.write_text("# A text\n\n- An item:\n\n  | a | b |\n  |---|---|\n  | 1 | 2 |\n")
    html = page(text, repository / "modules", "/").decode()
    assert "<li>" in html.split("<table")[0] and "|---|" not in html


def test_links_of_notebooks_to_texts_lead_to_pages(repository, is_there):
    for file in sorted((repository / "modules").glob("*.ipynb")):
        cells = json.loads(file.read_text("utf-8"))["cells"]
        text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
        for to in re.findall(r"\]\((?!https?:)([^)#]+\.md)", text):
            assert is_there(f"voila/render/{to}".replace("render/../", "")), (file, to)


def test_the_door_for_teachers_links_what_is_there_and_no_solutions_in_a_class(
    repository, is_there
):
    notes = notes_of(repository / "modules")
    for shown, in_class in ((notes, False), ({}, True)):
        text = teach_page("/", shown, in_class).decode()
        links = [address.removeprefix("/") for address in LINK.findall(text)]
        assert all(map(is_there, links)) and {*TEXTS.values()} <= {*links}
        assert any(address.startswith("voila/notes/") for address in links) != in_class
        assert ("class/board" in links) == in_class
    linked = page(repository / "docs" / "guide" / "install.md", repository / "modules", "/")
    assert b"voila/notes/" not in linked


def test_the_door_for_teachers_has_notes_by_what_they_are_for(repository):
    notes = notes_of(repository / "modules")
    text = teach_page("/", notes, in_class=False).decode()
    parts = dict(part.split("</h3>", 1) for part in text.split("<h3>")[1:])
    links = {heading: LINK.findall(part.split("<h2>")[0]) for heading, part in parts.items()}
    assert [*links] == ["For a course", "For a class", "Modules", "Labs"]
    assert sum(map(len, links.values())) == len(notes)
    assert sum("syllabus_" in each for each in links["For a course"]) == 6
    assert len(links["Modules"]) == len(PATH) + 1 and len(links["Labs"]) == len(LABS)
    assert "make course" in text and "<h3>" not in teach_page("/", {}, in_class=True).decode()


@pytest.mark.parametrize("name", ["a" * 300 + ".md", "é" * 200 + ".md", "a/" * 3000 + "b.md"])
@pytest.mark.parametrize("part", ["render", "labs", "docs", "notes"])
def test_a_name_that_no_file_system_takes_is_not_found(repository, part, name):
    assert re.fullmatch(ADDRESS, f"voila/{part}/{name}")
    own = Markdown.__new__(Markdown)
    own.initialize(repository / "modules", notes=True)
    with pytest.raises(HTTPError, match="404"):
        own.get(part, name)


@pytest.mark.parametrize(
    ("number", "raised"), [(errno.ENAMETOOLONG, HTTPError), (errno.EIO, OSError)]
)
def test_a_notebook_whose_name_no_file_system_takes_is_not_found(number, raised, monkeypatch):
    async def generator(self, path):
        raise OSError(number, path)
        yield

    async def renew(notebook):
        pass

    monkeypatch.setattr(Page, "get_generator", generator)
    monkeypatch.setattr(Page, "kernel_manager", SimpleNamespace(renew=renew))
    own = Page.__new__(Page)
    own.notebook_path = ""
    with pytest.raises(raised):
        asyncio.run(Page.get.__wrapped__(own, "a" * 300 + ".ipynb"))


@pytest.mark.parametrize("notes", [False, True])
def test_a_server_that_may_not_send_notes_sends_none(repository, notes, monkeypatch):
    sent = []
    monkeypatch.setattr(Markdown, "finish", lambda self, content: sent.append(content))
    monkeypatch.setattr(Markdown, "base_url", "/")
    own = Markdown.__new__(Markdown)
    own.initialize(repository / "modules", notes)
    file = sorted((repository / "instructor_notes").glob("*.md"))[0].name
    with nullcontext() if notes else pytest.raises(HTTPError, match="404"):
        own.get("notes", file)
    own.get("labs", "README.md")
    assert len(sent) == 1 + notes


@pytest.mark.parametrize(
    ("ip", "names", "classroom", "private"),
    [
        ("127.0.0.1", [], None, True),
        ("0.0.0.0", [], None, False),
        ("127.0.0.1", ["proxy.example"], None, False),
        ("127.0.0.1", [], "class", False),
    ],
)
def test_a_server_that_others_reach_shows_no_notes(
    ip, names, classroom, private, tmp_path, monkeypatch
):
    monkeypatch.setattr(Voila, "init_handlers", lambda self: [])
    configuration = voila_configuration(tmp_path, 1, ip, 0, allow_hosts=names)
    server = Server(config=configuration, root_dir=str(tmp_path))
    server.base_url, server.of_course = "/", True
    server.classroom = classroom and tmp_path / classroom
    monkeypatch.setattr("lib_dlhpc.explore.server.application._front", lambda: b"")
    monkeypatch.setattr("lib_dlhpc.explore.server.classroom.routes", lambda *_: [])
    asked = {pattern: rest for pattern, _, *rest in server.init_handlers()}
    (texts,), (teach,) = asked[f"/{ADDRESS}"], asked["/teach"]
    assert texts["notes"] == teach["notes"] == private
    assert teach["in_class"] == (classroom is not None)


@pytest.mark.parametrize("name", ["../secret.md", "../../etc/x.md", "no.md"])
def test_no_text_outside_of_its_folder_is_found(tmp_path, name):
    (tmp_path / "modules").mkdir()
    (tmp_path / "secret.md").write_text("# Secret", encoding="utf-8")
    assert found(tmp_path / "modules", "render", name) is None


def test_cells_of_a_wide_table_say_what_their_column_is_and_those_of_a_narrow_one_do_not(tmp_path):
    wide = "| a | *b* | c & d | e |\n|---|---|---|---|\n| 1 | 2 | 3 | 4 |\n"
    (tmp_path / "text.md").write_text(f"# T\n\n{wide}\n| x | y |\n|---|---|\n| 5 | 6 |\n")
    html = page(tmp_path / "text.md", tmp_path, "/").decode()
    assert re.findall(r'<td data-column="([^"]*)"', html) == ["a", "b", "c &amp; d", "e"]
    assert html.count('class="cards"') == 1 and html.count('<div class="scroll">') == 2


def test_an_option_of_a_command_is_not_cut_at_its_hyphens(tmp_path):
    text = tmp_path / "text.md"
    text.write_text("# A text\n\n    dlhpc submit --wait a -- b\n")
    assert b'submit <span class="whole">--wait</span> a -- b' in page(text, tmp_path, "/")
