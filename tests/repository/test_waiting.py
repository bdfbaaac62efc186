"""Tests wait for what they assert: none takes a page's word at once, sleeps instead, or has little patience.

What a page shows follows an action by some time, and on a busy machine by much: `assert` reads it once,
`eventually`, `tells` and `has` of tests/helpers read it until it is so.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE

# What reads a page that may still change.
READS = {
    *("inner_text", "text_content", "all_inner_texts", "all_text_contents", "inner_html", "count"),
    *("evaluate", "is_enabled", "is_disabled", "is_visible", "is_checked", "input_value"),
    *("get_attribute", "bounding_box", "content", "title", "screenshot", "drawn", "wall"),
}
# What takes a number of seconds after which it gives up.
WAITS = {"wait", "wait_for", "wait_procs", "join", "communicate", "run", "check_output"}


def reads(tree: ast.AST, own: frozenset[str] = frozenset()) -> bool:
    """Whether something in here reads a page: by a method, or by one of the file's own functions."""
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(
        (isinstance(f, ast.Attribute) and f.attr in READS)
        or (isinstance(f, ast.Name) and f.id in own)
        for f in calls
    )


def read_once(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of assertions about what was read from a page once."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    own = {f.name for f in functions if not f.name.startswith("test_") and reads(f)}
    own = frozenset(own | {"findings"})  # of axe
    for function in functions:
        known = {
            target.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and reads(node.value, own) and not waits(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(function):
            if isinstance(node, ast.Assert):
                names = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
                if not waits(node.test) and (reads(node.test, own) or names & known):
                    yield node.lineno


def waits(tree: ast.AST) -> bool:
    return any(isinstance(n, ast.Name) and n.id == "eventually" for n in ast.walk(tree))


def impatient(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of calls that give up sooner than a busy machine is done."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        limits = [k.value for k in node.keywords if k.arg == "timeout"]
        limits += node.args if name in ("wait", "wait_procs", "join") else []
        for limit in limits:
            seconds = limit.value if isinstance(limit, ast.Constant) else None
            if name in WAITS and isinstance(seconds, int | float) and 1 < seconds < PATIENCE:
                yield node.lineno
        if name == "wait_for_timeout":
            yield node.lineno


def files(folder: Path) -> list[Path]:
    found = sorted(folder.rglob("*.py"))
    assert found
    return found


def places(folder: Path, look, words: tuple[str, ...] = ("assert",)) -> list[str]:
    """Return what is found in files that have one of the words."""
    return [
        f"{path.relative_to(folder.parent)}:{line}"
        for path in files(folder)
        if any(word in (text := path.read_text(encoding="utf-8")) for word in words)
        for line in look(ast.parse(text))
    ]


def test_what_a_page_shows_is_waited_for(repository):
    assert places(repository / "tests" / "browser", read_once) == []
    assert places(repository / "tests" / "helpers", read_once) == []


def test_nobody_gives_up_before_a_busy_machine_is_done(repository):
    assert places(repository / "tests", impatient, ("timeout", "wait", "join")) == []


@pytest.mark.parametrize(
    ("look", "text", "lines"),
    [
        (read_once, "def test_a(page):\n    assert page.inner_text() == ''", [2]),
        (read_once, "def test_a(p):\n    t = p.inner_text()\n    assert t == ''", [3]),
        (read_once, "def f(p):\n    return p.count()\ndef test_a(p):\n    assert f(p) == 1", [4]),
        (read_once, "def test_a(p):\n    assert findings(p) == []", [2]),
        (read_once, "def test_a(p):\n    t = eventually(lambda: p.count())\n    assert t == 1", []),
        (impatient, "child.wait(timeout=20)\nchild.wait(timeout=PATIENCE)\nchild.join(5)", [1, 3]),
        (impatient, "wait_procs(family, 25)\nwait_procs(family, PATIENCE)", [1]),
        (impatient, "page.wait_for_timeout(300)", [1]),
    ],
)
def test_these_looks_find_what_they_look_for(look, text, lines):
    assert list(look(ast.parse(text))) == lines
