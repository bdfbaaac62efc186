"""Packages whose names are imported on first use: the table, what type checkers see, and what a user gets agree."""

import ast
import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

HOUSE = Path(__file__).parents[1] / "lib_dlhpc"
FOUND = {
    path: ast.parse(text)
    for path in sorted(HOUSE.glob("*/__init__.py"))
    if "\nlazy_names(" in (text := path.read_text("utf-8"))
}
PACKAGES = {f"lib_dlhpc.{path.parent.name}": tree for path, tree in FOUND.items()}


def seen(tree):
    """Return the module of each name that a package imports for type checkers."""
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    return {alias.name: each.module for each in block.body for alias in each.names}


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_see_the_same_names(package):
    module = import_module(package)
    assert module.homes == seen(PACKAGES[package])
    assert sorted(module.homes) == sorted(module.__all__)
    assert {*module.__all__} <= {*dir(module)}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_is_that_of_its_file_and_is_pickled(package):
    module = import_module(package)
    for name, home in module.homes.items():
        value = getattr(module, name)
        assert value is getattr(import_module(home), name) and not isinstance(value, ModuleType)
        if isinstance(value, type | FunctionType):
            assert pickle.loads(pickle.dumps(value)) is value


@pytest.mark.parametrize("first", ["file", "name"])
def test_a_name_takes_precedence_over_a_file_of_the_same_name(first):
    """Import sets each file on its package."""
    shared = [
        (package, name)
        for package, tree in PACKAGES.items()
        for name in seen(tree)
        if Path(HOUSE, package.rpartition(".")[2], f"{name}.py").exists()
    ]
    assert ("lib_dlhpc.schedules", "price") in shared
    lines = ["from importlib import import_module"]
    for package, name in shared:
        file = f"assert import_module('{package}.{name}').__name__ == '{package}.{name}'"
        both = [file, f"from {package} import {name}", f"assert callable({name})"]
        lines += both if first == "file" else [*both[1:], file, *both[1:]]
    code = "\n".join(lines)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_an_unknown_name_is_named():
    import lib_dlhpc.costs

    with pytest.raises(
        AttributeError, match=r"module 'lib_dlhpc\.costs' has no attribute 'bucket'"
    ):
        lib_dlhpc.costs.bucket  # noqa: B018
