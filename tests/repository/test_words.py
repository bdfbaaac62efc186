"""Texts use the field's words and American spelling: a list of words that must not come back."""

import json
import re
import tokenize

import pytest

INSTEAD = {
    r"foretold": "predicted",
    r"made again": "recomputed",
    r"put away": "offloaded",
    r"shared out": "sharded, partitioned or distributed",
    r"stands? still": "is idle, stalls",
    r"sticks? out": "is exposed",
    r"under way": "in flight",
    r"taken down": "recorded",
    r"optimisers?": "optimizer",
    r"labelled": "labeled",
    r"colour(s|ed|ing)?": "color",
    r"behaviours?": "behavior",
    r"neighbour(s|ing)?": "neighbor",
    r"normalis(e|es|ed|ing|ation)": "normalize",
    r"parallelis(e|es|ed|ing|ation)": "parallelize",
    r"grey": "gray",
    r"centre(s|d)?": "center",
}
PAGES = ("*.md", "modules/*.md", "labs/**/*.md", "instructor_notes/*.md")
LESSONS = ("lib_dlhpc/explore/*/*.toml",)
NOTEBOOKS = ("modules/*.ipynb", "labs/*/*.ipynb")
SPACED = re.compile(r"\d[ \u00a0]%(?![\w(*{])")
# Code and links are no text.
NOT_OURS = re.compile(r"^```.*?^```|`[^`\n]*`|\]\([^)]*\)", re.DOTALL | re.MULTILINE)


# Whole sources: names, comments, docstrings and messages. In a name, _ ends a word.
IN_CODE = re.compile(
    r"(?<![a-z])(foretold|told|made[\s_]+again|stands?[\s_]still|sticks?[\s_]out|shared[\s_]out|taken[\s_]down)(?![a-z])",
    re.IGNORECASE,
)


def blank(found):
    """Return the line breaks of what is left out, so that lines keep their numbers."""
    return "\n" * found[0].count("\n")


def texts(path):
    """Yield (place, text) of a page or a lesson file, or of each markdown cell of a notebook."""
    whole = path.read_text("utf-8")
    if path.suffix in (".md", ".toml"):
        yield "", whole
        return
    for number, cell in enumerate(json.loads(whole)["cells"]):
        if cell["cell_type"] == "markdown":
            yield f"cell {number}, ", "".join(cell["source"])


def found_in(text):
    """Yield (line, word, word to use instead)."""
    ours = NOT_OURS.sub(blank, text)
    for match in SPACED.finditer(ours):
        yield ours.count("\n", 0, match.start()) + 1, match[0], "no space before %"
    for pattern, instead in INSTEAD.items():
        for match in re.finditer(
            rf"\b({pattern.replace(' ', chr(92) + 's+')})\b", ours, re.IGNORECASE
        ):
            line = ours.count("\n", 0, match.start()) + 1
            yield line, " ".join(match[0].split()), instead


# A quote, then one after space alone, as the formatter leaves them: a file without needs no split into tokens.
ADJACENT = re.compile(r"""["'](?:\s|\\\n|#[^\n]*\n)+[rbfRBF]{0,2}["']""")


def pieces(path):
    """Yield (line, end, start) where a string of words follows another one, to which Python joins it."""
    before = ""
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.STRING:
                inner = token.string.lstrip("rbfRBF").strip("\"'")
                if " " in before and " " in inner:
                    yield token.start[0], before, inner
                before = inner
            elif token.type not in (tokenize.NL, tokenize.COMMENT):
                before = ""


def test_words_of_joined_strings_do_not_run_together(repository):
    mistakes = [
        f'{path.relative_to(repository)}, line {line}: "{before[-20:]}{after[:20]}"'
        for path in sorted((repository / "lib_dlhpc").rglob("*.py"))
        if ADJACENT.search(path.read_text("utf-8"))
        for line, before, after in pieces(path)
        if re.search(r"[\w,.;:?)}]$", before)
        and not before.endswith("\\n")
        and re.match(r"\w", after)
    ]
    assert not mistakes, "\n".join(mistakes)


@pytest.mark.parametrize(
    "between", [" ", "\n    ", "  # why\n    ", " \\\n", "\n\n    # why\n    f", " r"]
)
def test_joined_strings_are_found(tmp_path, between):
    file = tmp_path / "joined.py"
    file.write_text(f'x = (\n    "two words"{between}"and more"\n)\n', "utf-8")
    assert ADJACENT.search(file.read_text("utf-8"))
    assert [(before, after) for _, before, after in pieces(file)] == [("two words", "and more")]


@pytest.mark.parametrize("kind", [*PAGES, *LESSONS, *NOTEBOOKS])
def test_texts_use_the_fields_words(repository, kind):
    paths = sorted(path for path in repository.glob(kind) if ".venv" not in path.parts)
    assert paths
    mistakes = [
        f'{path.relative_to(repository)}, {place}line {line}: "{word}", use: {instead}'
        for path in paths
        for place, text in texts(path)
        for line, word, instead in found_in(text)
    ]
    assert not mistakes, "\n".join(mistakes)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a run as it was\nforetold by it", "foretold"),
        ("messages Under\nway", "Under way"),
        ("each rank stands still", "stands still"),
        ("Adam, an optimiser's state", "optimiser"),
        ("Two neighbouring slabs", "neighbouring"),
    ],
)
def test_a_word_is_found_with_its_line(text, word):
    ((line, found, _),) = found_in(text)
    assert found == word
    assert line == text[: text.index(word.split()[0])].count("\n") + 1


@pytest.mark.parametrize(
    "text",
    ["the optimizer", "`strategy.neighbours`", "[x](colour.md)", "```\ngrey\n```", "a greyhound"],
)
def test_code_links_and_other_words_pass(text):
    assert not list(found_in(text))


def test_code_uses_the_fields_words(repository):
    package = repository / "lib_dlhpc"
    paths = [*package.rglob("*.py"), *repository.glob("labs/*/*.py")]
    assert len(paths) > 100
    mistakes = [
        f'{path.relative_to(repository)}, line {number}: "{match[0]}"'
        for path in sorted(paths)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        for match in IN_CODE.finditer(line)
    ]
    assert not mistakes, "\n".join(mistakes)


@pytest.mark.parametrize(
    "line", ["foretold_here = 1", "# Told twice", "x_made_again", "not_told()"]
)
def test_a_word_is_found_in_code(line):
    assert IN_CODE.search(line)


@pytest.mark.parametrize("line", ["stoltold = 1", "untold", "it is made by hand"])
def test_other_code_passes(line):
    assert not IN_CODE.search(line)
