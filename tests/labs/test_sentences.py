"""Each sentence beside a lab's file is said there, and each that it says exists."""

import re
import tomllib
from pathlib import Path

import pytest

import lib_dlhpc.labs

FILES = sorted(Path(lib_dlhpc.labs.__file__).parent.glob("*/*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_file_says_exactly_its_sentences(path: Path) -> None:
    said = re.findall(r"\bsay\.(\w+)", path.with_suffix(".py").read_text("utf-8"))
    known = tomllib.loads(path.read_text("utf-8"))
    assert set(said) == set(known)
    assert len({*known.values()}) == len(known), "one sentence has two names"
