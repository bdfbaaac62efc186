"""Commands that the notes, the modules and the labs quote run as they are, and print what the notes say they do."""

import io
import json
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

import pytest

from lib_dlhpc.cli import main

ROOT = Path(__file__).parents[2]
# With what they work on: `dlhpc predict` alone, a FILE of the reader's own or one that a lab makes is not run.
QUOTED = re.compile(r"`dlhpc\s+((?:predict|plan|sweep|serve\s+predict)\s+[a-z][^`]*)`")
PLACES = (
    "instructor_notes/*.md",
    "modules/*.md",
    "modules/*.ipynb",
    "labs/*/README.md",
    "lib_dlhpc/explore/*/lesson.toml",
)


def text_of(path: Path) -> str:
    text = path.read_text("utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


COMMANDS = sorted(
    {
        " ".join(command.split())
        for place in PLACES
        for path in ROOT.glob(place)
        for command in QUOTED.findall(text_of(path))
    }
)


@cache
def printed(command: str) -> str:
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        assert main(shlex.split(command)) == 0, err.getvalue()
    return out.getvalue()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_quoted_command_runs(command):
    assert printed(command)


def test_llama_3_takes_what_the_notes_say():
    """On its machine with and without its checkpoints, with rarer ones, and on NVL72."""
    notes = text_of(ROOT / "instructor_notes" / "12_train_a_language_model.md")
    own, racks, rare = (
        printed(next(each for each in COMMANDS if re.fullmatch(pattern, each)))
        for pattern in (r"predict llama3-405b", r".*gb200-nvl72.*", r".*=10min")
    )
    step, goodput = r"one step +([\d.]+ m?s)", r"([\d.]+%) of the time becomes training"
    found = [re.search(pattern, own)[1] for pattern in (r"checkpoint +([\d.]+ ms)", step, goodput)]
    assert "with those of its file, {} per step, `dlhpc predict llama3-405b` prints {})".format(
        *found[:2]
    ) in " ".join(notes.split())
    later = re.search(goodput, rare)[1]
    assert f"goodput of {found[2]}, and" in " ".join(notes.split())
    assert f"run.checkpoint_interval=10min` {later};" in notes
    assert f"of each rack: {re.search(step, racks)[1]} per step" in " ".join(notes.split())
