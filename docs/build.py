"""Write a site that any web server can host: front page, modules to read, slides, guide, and a reference.

make docs        or        python docs/build.py FOLDER

Sphinx writes the pages, pdoc the reference of Python; the front page is that of `dlhpc explore` (front.py).
"""

import argparse
import inspect
import os
import pkgutil
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from unittest import mock

import front
import textbook

import lib_dlhpc
from lib_dlhpc import cli, load, predict
from lib_dlhpc.explore.course import EXPLORER as FIRST
from lib_dlhpc.explore.course import PATH
from lib_dlhpc.prediction.reports.explain import explain
from lib_dlhpc.schedules import COLLECTIVES, PIPELINES

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#:\s]+)(#[^)]*)?\)")
# Of the reference: pages and the command line.
WITHOUT = ("explore", "commands", "cli")
PAGES = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/**/*.md",
    "modules/*.md",
    "labs/**/*.md",
)
SYLLABI = "instructor_notes/syllabus_*.md"
# No answers in them.
COURSE = ("classes_14_weeks", "policies", "projects", "outcomes", "class", "cluster")
MODULES = sorted((ROOT / "modules").glob("[0-9]*.ipynb"))
ABOUT = "about.md"  # where README is; the front page is index.html
ORDER = (
    "install",
    "describe",
    "predict",
    "simulate",
    "parallelize",
    "plan",
    "scale_out",
    "input",
    "run",
    "checkpoint",
)
ORDER += ("cluster", "measure", "calibrate", "trace", "trust", "serve", "hub")
PYTHON = """# Python

<a href="api/index.html">Every function and class</a>, from the docstrings. [Recipes](docs/recipes.md) use them.
"""
SLIDES = """# Slides

A deck for each module, computed from its page, figures and instructor notes when this site is built. Each slide stands
beside its speaker notes, which have the timing, what to ask, and the answers. *Present* or F shows one slide at a time
in full screen; arrow keys turn, S opens the speaker notes in a window. `make slides` writes the same decks as
PowerPoint files.

| module | question | slides for 50 minutes | optional |
|---|---|---|---|
"""
# Runs whose terms differ: data parallel, tensor and pipeline, experts, failures.
EXPLAINED = ("goyal-2017", "narayanan-2021", "deepseek-v3-2048-h800", "llama3-405b")
SYMBOLS = """The terms of a step, each formula where it appears first. p ranks on N nodes of g devices; n bytes; α the
latency of a message, β seconds per byte sent, γ seconds per byte reduced, inside a node (in) and between nodes (out);
m microbatches."""
TEACH = """# Teach

{syllabi}
- [Plan of each class of the 14 weeks](instructor_notes/classes_14_weeks.md), [policies](instructor_notes/policies.md),
  [projects](instructor_notes/projects.md), and [outcomes](instructor_notes/outcomes.md) by NSF/IEEE-TCPP and CS2023
- [Slides](slides.md) of each module with speaker notes, and the [labs](labs/README.md)
- [Run a class](instructor_notes/class.md): serve the pages, a live board, grades; [labs on a
  cluster](instructor_notes/cluster.md)

Not on this site, since they have answers: notes for each module and lab with timing by the minute, misconceptions and
rubrics; exams, concept tests, problems, cases and design problems; lab solutions and the grader. They are in
`instructor_notes/` of the repository; `make course` writes the papers.
"""


def public(package: ModuleType = lib_dlhpc) -> Iterator[tuple[ModuleType, list[str]]]:
    """Yield each package and the names that its page has: its own, and those of its modules.

    What imports a library that is not installed here, such as PyTorch, has no page.
    """
    modules = [
        each
        for each in pkgutil.iter_modules(package.__path__)
        if each.name not in WITHOUT and _imports(f"{package.__name__}.{each.name}")
    ]
    own = getattr(package, "__all__", [])
    yield package, [*own, *(module.name for module in modules if module.name not in own)]
    for module in modules:
        if module.ispkg:
            yield from public(import_module(f"{package.__name__}.{module.name}"))


def _imports(module: str) -> bool:
    try:
        import_module(module)
    except ModuleNotFoundError:
        return False
    return True


def reference(folder: Path) -> None:
    """Write a page for each module into `folder`."""
    import pdoc

    for package, names in public():
        for name in getattr(package, "__all__", []):
            setattr(package, name, getattr(package, name))  # some are imported on first use
        package.__all__ = names
    pdoc.render.configure(show_source=False, template_directory=ROOT / "docs" / "pdoc")
    pdoc.pdoc("lib_dlhpc", output_directory=folder)


def pages() -> dict[Path, str]:
    """Return the Markdown of each page by its path below the root; what a link leads to is a page, or no link."""
    files = [path for pattern in (*PAGES, SYLLABI) for path in ROOT.glob(pattern)]
    files += [ROOT / "instructor_notes" / f"{name}.md" for name in COURSE]
    texts = {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in files}
    found = {*texts, *(path.relative_to(ROOT) for path in MODULES)}
    return {path: _linked(texts[path], path, found) for path in sorted(texts)}


def modules() -> dict[Path, str]:
    """Return the page of each module, to read, by its path below the root."""
    found = {*pages(), *(path.relative_to(ROOT) for path in MODULES)}
    paths = {path.relative_to(ROOT).with_suffix(".md"): path for path in MODULES}
    return {page: _linked(textbook.page(path), page, found) for page, path in paths.items()}


def _linked(text: str, page: Path, found: set[Path]) -> str:
    def link(match: re.Match[str]) -> str:
        image, text, target, anchor = match.groups()
        goal = Path(os.path.normpath(page.parent / target))
        if goal == Path("README.md"):
            target = os.path.relpath(ABOUT, page.parent)
            return f"[{text}]({target}{anchor or ''})"
        if goal.suffix == ".ipynb" and goal in found:
            return f"[{text}]({target.removesuffix('.ipynb')}.md)"
        if image or goal in found:
            return match[0]
        if goal / "README.md" in found:
            return f"[{text}]({target.rstrip('/')}/README.md{anchor or ''})"
        return text if text.startswith("`") else f"`{text}`"

    return LINK.sub(link, text)


def commands() -> str:
    """Return a page with the help of each command, and of the commands below it."""
    text = ["# Commands", ""]
    with mock.patch.dict(os.environ, {"COLUMNS": "90"}):
        for verb in cli.VERBS:
            (one,) = _below(cli.parser_of(verb))
            for parser, level in ((one, "##"), *((each, "###") for each in _below(one))):
                text += [
                    f"{level} {parser.prog}",
                    "",
                    "```text",
                    parser.format_help().rstrip(),
                    "```",
                    "",
                ]
    return "\n".join(text)


def _below(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """Return the parsers of the commands of a parser."""
    kinds = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    return [below for kind in kinds for below in kind.choices.values()]


def formulas() -> str:
    """Return a page with the formulas of steps, collectives and pipelines, as the library states them."""
    text = ["# Formulas", "", SYMBOLS, ""]
    shown: set[tuple[str, str]] = set()
    for run in EXPLAINED:
        text += [f"## {run}", "", f"`dlhpc predict {run} --explain` shows their inputs.", ""]
        for each in explain(predict(load(run))):
            if (each.name, each.formula) not in shown:
                shown.add((each.name, each.formula))
                text += [f"### {each.name}", "", f"> `{each.formula}`", ""]
                text += [f"Source: {each.source}. Assumptions: {each.assumes}", ""]
    text += ["## Collectives", ""]
    for goal, records in COLLECTIVES.items():
        rows = [f"| {each.label} | {each.formula} |" for each in records.values() if each.formula]
        if rows:
            text += [
                f"### {goal.replace('_', '-')}",
                "",
                "| algorithm | time |",
                "|---|---|",
                *rows,
                "",
            ]
    text += ["## Pipelines", ""]
    for name, pipeline in PIPELINES.items():
        text += [f"### {name}", "", inspect.getdoc(pipeline) or "", ""]
    return "\n".join(text)


def teach() -> str:
    """Return the page for teachers: what of the course is on this site, and what is not."""
    syllabi = []
    for path in sorted(ROOT.glob(SYLLABI)):
        title = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        syllabi.append(f"- [{title}](instructor_notes/{path.name})")
    return TEACH.format(syllabi="\n".join(syllabi))


def decks(folder: Path) -> str:
    """Write the deck of each module as a page into `folder`; return the page that links to them."""
    from lib_dlhpc.explore.slides.deck import deck
    from lib_dlhpc.explore.slides.page import page

    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for module in PATH:
        slides = deck(module, ROOT)
        (folder / f"{module.name}.html").write_text(page(slides, module.heading), encoding="utf-8")
        link = f'<a href="{folder.name}/{module.name}.html">{module.heading}</a>'
        optional = sum(slide.optional for slide in slides)
        rows.append(f"| {link} | {module.question} | {len(slides) - optional} | {optional} |")
    return SLIDES + "\n".join(rows) + "\n"


def contents() -> str:
    """Return what follows README on the first page: the table of contents."""
    guide = "\n".join(f"docs/guide/{name}" for name in ORDER)
    labs = "\n".join(
        f"labs/{path.parent.name}/README" for path in sorted(ROOT.glob("labs/*/README.md"))
    )
    read = "\n".join(f"modules/{module.name}" for module in PATH)
    syllabi = "\n".join(
        f"instructor_notes/{path.stem}" for path in sorted(ROOT.glob(SYLLABI), reverse=True)
    )
    taught = "\n".join(f"instructor_notes/{name}" for name in COURSE)
    parts = {
        "Modules": f"modules/README\nmodules/{Path(FIRST).stem}\n{read}\nmodules/glossary",
        "Labs": f"labs/README\n{labs}",
        "Teaching": f"teach\nslides\n{syllabi}\n{taught}",
        "Guide": guide,
        "Reference": "commands\nPython <python>\ndocs/recipes",
        "Explanation": "formulas\ndocs/limits\ndocs/corrections\ndocs/peers\ndocs/machines\ndocs/epochs\ndocs/trainer",
        "Project": "CONTRIBUTING\nCHANGELOG",
    }
    trees = (
        f"```{{toctree}}\n:hidden:\n:caption: {name}\n\n{tree}\n```\n"
        for name, tree in parts.items()
    )
    return "\n" + "\n".join(trees)


def gather(source: Path) -> None:
    """Write the pages of the documentation, as Sphinx reads them, into `source`."""
    for path, text in (pages() | modules()).items():
        page = source / (path if path != Path("README.md") else Path(ABOUT))
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text + (contents() if page.name == ABOUT else ""), encoding="utf-8")
    shutil.copy(ROOT / "modules" / "explorer.png", source / "modules")
    shutil.copy(ROOT / "docs" / "site" / "conf.py", source)
    (source / "commands.md").write_text(commands(), encoding="utf-8")
    (source / "formulas.md").write_text(formulas(), encoding="utf-8")
    (source / "teach.md").write_text(teach(), encoding="utf-8")
    (source / "python.md").write_text(PYTHON, encoding="utf-8")


def main(folder: str = "build/docs") -> None:
    """Write the site into `folder`. A link that leads nowhere is an error."""
    from sphinx.cmd.build import build_main

    out = Path(folder).resolve()
    with tempfile.TemporaryDirectory() as source:
        gather(Path(source))
        (Path(source) / "slides.md").write_text(decks(out / "slides"), encoding="utf-8")
        if build_main(["-q", "-W", "--keep-going", "-b", "html", source, str(out)]):
            raise SystemExit("The documentation has errors: see above.")
    reference(out / "api")
    front.write(out)
    print(f"Site: {out / 'index.html'}; the folder is ready to upload")


if __name__ == "__main__":
    main(*sys.argv[1:])
