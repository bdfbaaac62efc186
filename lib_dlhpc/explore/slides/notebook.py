"""What the notebook of a module says: its sections with their prose and tables, and the misconceptions of its notes."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.slides.tex import spoken

SENTENCE = re.compile(r"(?:(?<=[.?!])|(?<=[.?!]\)))(?<!al\.) (?=[A-Z0-9])")  # "et al. 2017" goes on

ROW = re.compile(r"\| .* \|")  # of a table


class Section(NamedTuple):
    """A section of a notebook: its heading, its paragraphs, its tables and the names of what it asks."""

    heading: str
    paragraphs: tuple[str, ...]
    tables: tuple[tuple[tuple[str, ...], ...], ...]
    asked: tuple[str, ...]


def notebook_text(path: Path) -> str:
    """Return what the cells of a notebook say."""
    return "\n\n".join(
        "".join(cell["source"]) for cell in json.loads(path.read_text("utf-8"))["cells"]
    )


def plain(text: str) -> str:
    """Return Markdown as text: links without their addresses, no marks of emphasis."""
    return _unmarked(re.sub(r"\s+", " ", spoken(text))).strip()


def plain_lines(text: str) -> str:
    """Return Markdown as text, line by line; a row of a table is what its cells say, its heading first."""
    return "\n".join(
        _unmarked(re.sub(r" *\| *", ": ", line.strip("| ")) if ROW.fullmatch(line) else line)
        for line in map(str.strip, spoken(text).splitlines())
        if not re.fullmatch(r"\|[-:| ]+\|", line)
    )


def _unmarked(text: str) -> str:
    return re.sub(r"[*`]", "", re.sub(r"\[([^\]]+)\]\((?:[^()]|\([^()]*\))*\)", r"\1", text))


def sentences(text: str) -> list[str]:
    """Return the sentences of a plain text."""
    return SENTENCE.split(text)


def first(text: str, words: int) -> str:
    """Return the first sentences of a plain text that have at most `words` words together.

    Where the first one has more, its first clauses, and an ellipsis.
    """
    found = taken(sentences(text), words)
    if found or not words:
        return " ".join(found)
    clauses = taken(re.split(r"(?<=[,;:]) ", re.sub(r" \([^()]*\)", "", text)), words - 1)
    return f"{' '.join(clauses).rstrip(',;: ')} …" if clauses else ""


def taken(lines: Sequence[str], words: int) -> list[str]:
    """Return the first of some lines that have at most `words` words together."""
    counts = accumulate(len(line.split()) for line in lines)
    return [line for line, count in zip(lines, counts, strict=True) if count <= words]


def sections(text: str) -> Iterator[Section]:
    """Yield the sections of a notebook's text; the first has the notebook's title."""
    for part in re.split(r"^##? ", text, flags=re.M)[1:]:
        heading, _, rest = part.partition("\n")
        parts = [each.strip() for each in rest.split("\n\n")]
        tables = [table(each) for each in parts if each.startswith("|")]
        said = (each for each in parts if re.match(r"\*?[^\W\d]|\*\*[\w-]+\*\*:? (?!:)", each))
        prose = [each for each in said if not re.match(r"from \w|ask\(|def |try_out\(", each)]
        asked = re.findall(r'^ask\("(\w+)"\)', rest, re.M)
        yield Section(plain(heading), tuple(prose), tuple(tables), tuple(asked))


def table(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the rows of a Markdown table."""
    rows = [line.strip().strip("|").split("|") for line in text.splitlines()]
    return tuple(
        tuple(map(plain, row)) for row in rows if not re.fullmatch(r"[-:| ]+", "|".join(row))
    )


def misconceptions(notes: str) -> list[tuple[str, str]]:
    """Return the misconceptions of instructor notes, each with what exposes it."""
    section = notes.split("## Misconceptions", 1)[1].split("\n## ", 1)[0]
    found = re.findall(r"^- \*(.+?)\*(.*?)(?=^- |\Z)", section, re.M | re.S)
    return [(plain(name), plain(rest).lstrip(" .,")) for name, rest in found]


def after(text: str, words: str) -> str:
    """Return the rest of the paragraph after words in bold, up to the next words in bold; SpecError without one."""
    found = re.search(rf"\*\*{words}\.?\*\*(.+?)(?=\n\n|\s\*\*[A-Z]|\Z)", text, re.S)
    if not found:
        raise SpecError(f"the notebook has no paragraph with {words!r}.")
    return " ".join(found[1].split())
