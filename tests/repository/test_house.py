"""The package stays a house: short functions and files, no circles, no private name of another file."""

import ast
import re

import pytest

LINES, STATEMENTS = 400, 50  # of a file, of a function
STATEMENT = (ast.stmt, ast.excepthandler, ast.match_case)


@pytest.fixture(scope="module")
def files(repository):
    """The modules by name, each with its text and syntax tree."""
    found = {}
    for path in sorted((repository / "lib_dlhpc").rglob("*.py")):
        name = ".".join(path.relative_to(repository).with_suffix("").parts)
        text = path.read_text("utf-8")
        found[name.removesuffix(".__init__")] = text, ast.parse(text)
    return found


def imported(tree, modules):
    """Yield the modules that a module imports when it runs, also within its functions, and on first use of a name."""
    for node in walked(tree, *[type_checked] * (not is_lazy(tree))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def walked(node, but=lambda node: False):
    """Yield a tree and its statements, which no expression holds. but: what is left out."""
    if but(node):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, STATEMENT):
            yield from walked(child, but)


def type_checked(node):
    """Whether only a type checker sees it."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def is_lazy(tree):
    """Whether it is a package whose names are imported on first use: those that it imports for type checkers."""
    return any(ast.unparse(node).startswith("lazy_names(") for node in tree.body)


def circles(graph):
    """Return the modules that import themselves through others."""
    reached, graph = {}, dict(graph)
    while ends := [module for module in graph if not graph[module] & graph.keys()]:
        for module in ends:  # no circle is behind these: most of a package
            del graph[module]
    for module in graph:
        seen, todo = set(), [*graph[module]]
        while todo:
            at = todo.pop()
            if at not in seen:
                seen.add(at)
                todo += graph.get(at, ())
        reached[module] = seen
    return sorted(module for module in graph if module in reached[module])


def private(tree):
    """Yield the private names of the package that a module imports."""
    for node in walked(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lib_dlhpc"):
            names = (alias.name for alias in node.names)
            yield from (name for name in names if name.startswith("_") and name[1] != "_")


def test_a_file_is_read_in_one_sitting(files):
    long = {name: text.count("\n") for name, (text, _) in files.items()}
    assert {name: lines for name, lines in long.items() if lines > LINES} == {}


def test_a_function_fits_on_a_page(files):
    long = [
        f"{name}.{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for name, (_, tree) in files.items()
        for node in walked(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno >= STATEMENTS
    ]
    assert long == []


def test_no_module_imports_itself_through_others(files):
    graph = {
        name: {each for each in imported(tree, files) if each in files and each != name}
        for name, (_, tree) in files.items()
    }
    assert circles(graph) == []


# A private name that is imported stands behind one of these; most files of tests need not be parsed.
HIDDEN = re.compile(r"(?:^|import|,|\()[ \t]*_[a-zA-Z]", re.M)


def test_private_names_stay_in_their_file(files, repository):
    trees = {name: tree for name, (_, tree) in files.items()}
    for path in (repository / "tests").rglob("*.py"):
        if HIDDEN.search(text := path.read_text("utf-8")):
            trees[str(path.relative_to(repository))] = ast.parse(text)
    found = {name: sorted(set(private(tree))) for name, tree in trees.items()}
    assert {name: names for name, names in found.items() if names} == {}


def test_the_formatter_lays_out_every_line(repository):
    fought = [
        str(path.relative_to(repository))
        for folder in ("lib_dlhpc", "tests", "benchmarks", "labs")
        for path in (repository / folder).rglob("*.py")
        if "fmt: " + "skip" in path.read_text("utf-8")
    ]
    assert fought == []


def test_a_circle_is_found_and_a_private_name(repository):
    """The laws can fail."""
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c"]
    assert circles({"a": {"b"}, "b": set()}) == []
    text = "from lib_dlhpc.costs import _one, two\nfrom os import _exit"
    tree = ast.parse(text)
    assert len(HIDDEN.findall(text)) == 2
    assert HIDDEN.search("import (a, _b)") and HIDDEN.search("import (  # c\n    _b,\n)")
    assert list(private(tree)) == ["_one"]
    hidden = ast.parse("if TYPE_CHECKING:\n    from a import b\ndef f():\n    import c")
    assert list(imported(hidden, {})) == ["c"]
    lazily = ast.parse("if TYPE_CHECKING:\n    from a import b\nlazy_names(__name__, {'a': ['b']})")
    assert list(imported(lazily, {})) == ["a"]


ENGINES = re.compile(
    r"^\s*from lib_dlhpc\.(?:costs|layers|layout|schedules|simulation)\.\S+ import", re.M
)


def test_pages_know_engines_by_what_their_rooms_export(repository):
    """So that files of an engine can change, move and go without a change of a page."""
    pages = (repository / "lib_dlhpc" / "explore").rglob("*.py")
    assert not {str(page): found for page in pages if (found := ENGINES.findall(page.read_text()))}


def test_no_percentage_is_printed_as_minus_zero(files):
    """The z in +z.0% prints -0.1% as +0%."""
    signed = re.compile(r":[<>^]?\+\d*\.\d%\}")
    assert not [name for name, (text, _) in files.items() if signed.search(text)]
