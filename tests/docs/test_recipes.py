"""Every recipe runs as it is, and the API reference has a page for every public name."""

import importlib.util
import pkgutil
import re
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

import lib_dlhpc
from lib_dlhpc.schedules import COLLECTIVES

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = (DOCS / "recipes.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^## (.+?)\n.*?^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL))


@pytest.fixture
def build(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    spec = importlib.util.spec_from_file_location("docs_build", DOCS / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_runs(title, request, own_place, monkeypatch):
    if "to_frame" in RECIPES[title]:  # the lock has neither pandas nor polars
        fake = SimpleNamespace(DataFrame=dict)
        monkeypatch.setattr("lib_dlhpc.results.frames.import_module", lambda library: fake)
    if "compare(" in RECIPES[title]:
        request.getfixturevalue("ranks_can_start")
    exec(compile(RECIPES[title], f"recipes.md: {title}", "exec"), {"__name__": "__main__"})


def test_there_are_fourteen_recipes_and_each_has_one_block():
    assert len(RECIPES) == TEXT.count("```python") == TEXT.count("\n## ") == 14
    assert max(len(block.splitlines()) for block in RECIPES.values()) <= 15


def test_the_reference_has_every_public_name_and_no_screen(build):
    pages = {package.__name__: names for package, names in build.public()}
    assert set(lib_dlhpc.__all__) <= set(pages["lib_dlhpc"])
    assert {"Result", "charts"} <= set(pages["lib_dlhpc.results"])
    assert not any(name.startswith("lib_dlhpc.explore") for name in pages)
    for name, names in pages.items():
        package = import_module(name)
        assert package.__doc__, name
        inside = {module.name for module in pkgutil.iter_modules(package.__path__)}
        for module in inside.intersection(names):
            import_module(f"{name}.{module}")  # as pdoc does, which ends at the first that fails


def test_the_documentation_has_each_page_of_the_guide_and_links_to_its_own_pages(build):
    guide = {path.stem for path in (DOCS / "guide").glob("*.md")}
    assert guide == set(build.ORDER)
    pages = build.pages()
    read = {path.relative_to(build.ROOT).with_suffix(".md") for path in build.MODULES}
    for path, text in pages.items():
        for image, _, target, _ in build.LINK.findall(text):
            goal = (build.ROOT / path.parent / target).resolve().relative_to(build.ROOT)
            assert image or goal in pages or goal in read or goal.name == build.ABOUT, (
                path,
                target,
            )
    assert "[describe](docs/guide/describe.md)" in pages[Path("README.md")]
    assert "[LICENSE]" not in pages[Path("README.md")]


def test_the_page_of_commands_has_each_option_of_the_commands_below_them(build):
    page = build.commands()
    for heading, words in {
        "## dlhpc predict": "--explain",
        "### dlhpc import machine": "--base MACHINE",
        "### dlhpc trace calibrate": "--out OUT",
        "### dlhpc class serve": "--allow-host",
    }.items():
        assert words in page.partition(f"\n{heading}\n")[2].partition("\n#")[0], heading


def test_the_page_of_formulas_has_each_term_collective_and_pipeline_once(build):
    page = build.formulas()
    headings = re.findall(r"^### (.+)", page, re.MULTILINE)
    for term in ("compute", "pipeline bubble", "experts messages", "expected time with failures"):
        assert term in headings
    assert {"allreduce", "reduce-scatter", "all-to-all", "1f1b", "zb-h1"} <= set(headings)
    for record in COLLECTIVES["allreduce"].values():
        assert page.count(f"| {record.label} | {record.formula} |") == 1
    formulas = re.findall(r"^> `(.+)`$", page, re.MULTILINE)
    assert len(formulas) > 20 and max(map(formulas.count, formulas)) == 1
