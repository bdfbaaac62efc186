"""Which hand-ins of a class look alike: by runs of tokens that they share, names replaced, the starter left out.

The idea is that of MOSS: Schleimer, Wilkerson, Aiken, "Winnowing: local algorithms for document fingerprinting"
(SIGMOD 2003), here with all runs of tokens, not a sample of them.
"""

import io
import json
import keyword
import tokenize
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

RUN = 6  # tokens
FEW = 20  # runs, below which a resemblance says nothing
ALIKE = 0.8  # share of runs, from which on a pair is listed
SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENCODING, tokenize.ENDMARKER}


class Pair(NamedTuple):
    """Two hand-ins: which share of the shorter one's runs the other has, as written and with names replaced."""

    one: str
    other: str
    structure: float
    written: float


def pairs(texts: Mapping[str, str], starter: str = "", alike: float = ALIKE) -> list[Pair]:
    """Return the pairs that are alike, the most alike first. starter: what all were given."""
    base = {renamed: runs(starter, renamed) for renamed in (True, False)}
    known = {
        name: [runs(text, renamed) - base[renamed] for renamed in (True, False)]
        for name, text in texts.items()
    }
    found = []
    for one, other in combinations(known, 2):
        structure, written = (share(a, b) for a, b in zip(known[one], known[other], strict=True))
        if max(structure, written) >= alike:
            found.append(Pair(one, other, structure, written))
    return sorted(found, key=lambda pair: (-pair.written, -pair.structure, pair.one, pair.other))


def runs(text: str, renamed: bool) -> Counter[tuple[str, ...]]:
    """Return the runs of tokens of a source. renamed: names, numbers and strings are alike, comments left out."""
    words = _words(text, renamed)
    return Counter(tuple(words[at : at + RUN]) for at in range(len(words) - RUN + 1))


def share(one: Counter[tuple[str, ...]], other: Counter[tuple[str, ...]]) -> float:
    """Return which share of the shorter one is in the other, from 0 to 1; 0 where it is too short to say."""
    least = min(one.total(), other.total())
    return (one & other).total() / least if least >= FEW else 0.0


def _words(text: str, renamed: bool) -> list[str]:
    found: list[str] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.INDENT, tokenize.DEDENT):
                found.append(tokenize.tok_name[token.type])
            elif token.type == tokenize.COMMENT and not renamed:
                found.append(token.string)
            elif token.type not in SKIPPED:
                found.append(_word(token) if renamed else token.string)
    except (tokenize.TokenError, SyntaxError):  # what comes before it counts
        pass
    return found


def _word(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
        return "name"
    return {tokenize.NUMBER: "number", tokenize.STRING: "string"}.get(token.type, token.string)


def starter_of(lab: Path) -> str:
    """Return the code of a lab's notebook."""
    sources = []
    for file in lab.glob("*.ipynb"):
        cells = json.loads(file.read_text("utf-8"))["cells"]
        sources += ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return "\n".join(sources)


def report(found: Sequence[Pair], lab: str) -> str:
    """Return the pairs as a page in Markdown."""
    lines = [f"# Hand-ins of {lab} that look alike", ""]
    if not found:
        return "\n".join([*lines, "None.", ""])
    lines += ["| one | other | as written | structure |", "|---|---|---|---|"]
    for pair in found:
        names = f"| {_cell(pair.one)} | {_cell(pair.other)}"
        lines.append(f"{names} | {pair.written:.0%} | {pair.structure:.0%} |")
    words = (
        "*As written*: names and comments count. *Structure*: names, numbers and strings do not. Short correct"
        " functions all have the same structure; look at names and comments before you ask."
    )
    return "\n".join([*lines, "", words, ""])


def _cell(name: str) -> str:
    return " ".join(name.split()).replace("|", "\\|").replace("<", "&lt;")
