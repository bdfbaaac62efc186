"""Each sentence beside a file is said there, and each that it says exists."""

import re
import tomllib
from pathlib import Path

import pytest

import lib_dlhpc

FILES = [
    path
    for path in sorted(Path(lib_dlhpc.__file__).parent.rglob("*.py"))
    if "lib_dlhpc.sentences import" in path.read_text("utf-8")
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_file_says_exactly_its_sentences(path: Path) -> None:
    said = re.findall(r"\bsay\.(\w+)", path.read_text("utf-8"))
    known = tomllib.loads(path.with_suffix(".toml").read_text("utf-8"))
    assert set(said) == set(known)
    assert len({str(each) for each in known.values()}) == len(known), "a sentence has two names"
