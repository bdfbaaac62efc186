"""A deck has what its module's page has: a slide to predict on, then the figure; answers of checks in the notes."""

import re
from itertools import pairwise

import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.course import PATH
from lib_dlhpc.explore.hybrid_parallel import map as layouts
from lib_dlhpc.explore.hybrid_parallel.map import DEEP, TENSOR
from lib_dlhpc.explore.language_model.diagrams import four_bits
from lib_dlhpc.explore.slides.asked import checks
from lib_dlhpc.explore.slides.notebook import (
    first,
    misconceptions,
    notebook_text,
    plain,
    plain_lines,
    sections,
    sentences,
)
from lib_dlhpc.explore.slides.slide import (
    ANSWER,
    BOARD,
    CHECK,
    CODE,
    EARLIER,
    IDEA,
    LIST,
    NEXT,
    OPENING,
    PREDICT,
    QUESTION,
    RESULT,
    WORDS,
)
from lib_dlhpc.explore.slides.sources import Titles, lesson_of, titles_of
from lib_dlhpc.serving.published import published

MARKDOWN = r"^\||`|\]\(|(?<!\S)\*+\w|\w\*+(?!\S)"
UNFILLED = r"\{\w+(?::[^{}]*)?\}"  # a number that a lesson names
# What a title points to when nothing before it says so: "its" may follow its noun, as in "a node and its link".
POINTS = re.compile(
    r"^(?:its|that|this|these|they|it)\b|\bthen\b|\b(?:is|does) (?:it|that)\b", re.I
)
NAMES = [module.name for module in PATH]


@pytest.fixture
def lesson(repository):
    return lambda name: lesson_of(notebook_text(repository / "modules" / f"{name}.ipynb"))


@pytest.mark.parametrize("name", NAMES)
def test_about_twenty_slides_with_few_lines_and_notes(decks, name):
    slides = decks[name]
    taught = [slide for slide in slides if not slide.optional]
    # As instructor_notes/README.md says.
    assert 23 <= len(taught) <= 31 and len(slides) - len(taught) <= 6
    assert slides == taught + slides[len(taught) :]  # what a class has no time for comes last
    titles = [(slide.title, slide.kind) for slide in slides if not slide.figure]
    assert len(set(titles)) == len(titles)
    for slide in slides:
        assert slide.title and slide.notes.strip(), slide.title
        assert len(slide.lines) <= (20 if slide.kind == CODE else 6), slide.title
        assert slide.lines or slide.figure or slide.table or slide.formulas, slide.title
        assert slide.kind, slide.title
        assert len(slide.title) < 130 and not re.fullmatch(r"\w+ \d", slide.title), slide.title
        assert sum(map(len, slide.lines)) < 950, slide.title
        if slide.kind == CODE:
            continue
        assert not re.search(r"[{}]|\*\*|\]\(|\bnan\b", " ".join(slide.lines)), slide.title


@pytest.mark.parametrize("name", NAMES)
def test_notes_have_no_markdown(decks, name):
    for slide in decks[name]:
        assert not re.search(MARKDOWN, slide.notes), (slide.title, slide.notes)
        assert not re.search(UNFILLED, slide.notes), (slide.title, slide.notes)
    assert "\nMinutes 0-" in decks[name][0].notes


def test_lines_of_markdown_lose_its_marks_and_keep_norms():
    text = "**It** is [a](b.md):\n\n| a | b |\n|---|---|\n| $c$ | d |\n\n|w| of *x*"
    assert plain_lines(text) == "It is a:\n\na: b\nc: d\n\n|w| of x"


@pytest.mark.parametrize("text", ["| a | b |", "an *Idea* of", "`make`", "[a](b.md)", "**a**"])
def test_markdown_is_seen(text):
    assert re.search(MARKDOWN, text)


@pytest.mark.parametrize("name", NAMES)
def test_notes_have_no_tex(decks, name):
    for slide in decks[name]:
        # A sum of money may stay.
        assert not re.search(r"\\[a-zA-Z]|\$(?![/\d])", slide.notes), slide.title


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_stands_beside_its_question_without_its_result_and_then_with_it(
    decks, name, lesson, repository
):
    slides = decks[name]
    assert sum(slide.figure is not None for slide in slides) >= 2
    guesses = [each for each, text in lesson(name).texts.items() if "guess" in text]
    asked = [slide for slide in slides if slide.kind == PREDICT]
    assert len(asked) == len(guesses)
    topics = titles_of(notebook_text(repository / "modules" / f"{name}.ipynb")).asked
    of = {slide.title: slide for slide in asked}
    for own in guesses:
        slide = of[topics[own]]
        assert own == "across_nodes" or f"It is {lesson(name).result(own)}." in slide.notes
        assert not slide.covered or "It is " not in " ".join((slide.title, *slide.lines))
    for before, slide in pairwise(slides):
        assert slide.kind == RESULT or not before.covered
        assert slide.kind != RESULT or before.covered or before.diagram
        assert not (slide.figure and slide.diagram), slide.title
        assert before.kind != PREDICT or slide.kind in (RESULT, ANSWER), before.title
        if slide.kind == RESULT:
            assert before.kind == PREDICT and before.figure in (slide.figure, None)
            assert slide.lines[0].startswith(f"{before.title}: ")
            assert slide.source.startswith("Figure: ")
    assert all(slide.kind in (PREDICT, RESULT) for slide in slides if slide.figure)


@pytest.mark.parametrize("name", NAMES)
def test_titles_belong_to_sections_and_guesses_and_are_sentences(decks, name, lesson, repository):
    text = notebook_text(repository / "modules" / f"{name}.ipynb")
    titles, slides = titles_of(text), decks[name]
    ideas = {slide.section: slide.title for slide in slides if slide.kind == IDEA}
    ideas |= {slide.section: slide.aside[0] for slide in slides if slide.diagram and slide.aside}
    assert titles.ideas == ideas
    guesses = {each for each, own in lesson(name).texts.items() if "guess" in own}
    assert titles.shown.keys() | titles.figures.keys() | titles.settings.keys() <= guesses
    assert titles.figures.keys() | titles.settings.keys() <= titles.shown.keys()
    assert titles.answered.keys() == guesses - titles.shown.keys()
    shown = [slide.title for slide in slides if slide.kind == RESULT]
    assert shown == list(titles.shown.values())
    answered = [slide.title for slide in slides if slide.kind == ANSWER]
    assert answered == list(titles.answered.values())
    for title in (*ideas.values(), *shown, *answered):
        assert len(title.split()) >= 4 and len(title) <= 90 and title[-1] not in ".?!:", title


@pytest.mark.parametrize("name", NAMES)
def test_no_figure_is_shown_of_what_is_not_measured_yet(decks, name):
    for slide in decks[name]:
        assert not slide.figure or not slide.figure.summary.startswith("Nothing"), slide.title


def test_the_map_of_layouts_is_shown_in_full(decks):
    """Published GPT-3 ran in 8 × 12 × 4; that smaller tensor groups lead is within the error."""
    (slide,) = (each for each in decks["05_hybrid_parallel"] if "double the step" in each.title)
    cells = slide.figure.data["cells"]
    assert len(cells["tensor"]) == len(TENSOR) * len(DEEP)
    marks = {mark: tensor for tensor, mark in zip(cells["tensor"], cells["mark"], strict=True)}
    assert marks["best"] < marks["published"] == layouts.RUNS[layouts.FIRST].tensor
    assert "19 of 40 layouts fit" in slide.notes
    (bars,) = (
        each for each in decks["05_hybrid_parallel"] if "Stages and slabs together" in each.title
    )
    assert {"2 stages × 8 slabs", "16 slabs"} <= set(bars.figure.data["parts"]["row"])


@pytest.mark.parametrize("name", NAMES)
def test_every_check_has_its_answer_in_the_notes(decks, name, lesson):
    texts = [text for text in lesson(name).texts.values() if "check" in text or "compute" in text]
    slides = [slide for slide in decks[name] if slide.kind == CHECK]
    assert len(slides) == len(texts)
    begun = [slide.notes.split("\n", 1)[1].partition(" ")[0] for slide in slides]
    expected = ["Vote," if "check" in text else "It" for text in texts]
    assert sorted(begun) == sorted(expected)  # those that end a section come first
    for slide in slides:
        (right,) = (line for line in slide.lines if line.startswith("Right: "))
        assert right == slide.lines[-1]
        letter = right.removeprefix("Right: ")
        if letter in "ABCDEFG":
            (answer,) = (line for line in slide.lines if line.startswith(f"{letter}. "))
            assert f"Right: {answer[3:]}\n" in slide.notes
        else:
            assert f"It is {letter}. " in slide.notes


@pytest.mark.parametrize("place", range(1, len(PATH)))
def test_a_deck_opens_with_questions_of_earlier_modules(decks, lesson, place):
    (slide,) = (each for each in decks[PATH[place].name] if each.title == "From earlier modules")
    earlier = {
        lesson(module.name).filled(text["check"])
        for module in PATH[:place]
        for text in lesson(module.name).texts.values()
        if "check" in text
    }
    for question, *options, right in (slide.lines, slide.aside):
        assert question in earlier and right.removeprefix("Right: ") in "ABCD"[: len(options)]
        assert [line[:3] for line in options] == ["A. ", "B. ", "C. ", "D. "][: len(options)]


@pytest.mark.parametrize("name", NAMES)
def test_a_section_has_its_idea_and_every_table_before_its_question(decks, name, repository):
    text = notebook_text(repository / "modules" / f"{name}.ipynb")
    slides = decks[name]
    tables = [each for own in sections(text) for each in own.tables]
    assert set(tables) <= {slide.table for slide in slides}
    ideas = [slide for slide in slides if slide.kind == IDEA]
    assert len(ideas) >= 2 and len({slide.title for slide in ideas}) == len(ideas)
    for slide in ideas:
        assert slide.lines or slide.table
        after = [each for each in slides if (each.section, each.kind) == (slide.section, PREDICT)]
        assert not after or slides.index(slide) == slides.index(after[0]) - 1


def test_a_section_has_its_prose_its_tables_and_what_it_asks():
    text = """# A title: why?

A *first* line.

from x import ask

ask("one")

## Next

It says.

| a | b |
|---|---|
| `c` | d |

- a list"""
    first, after = sections(text)
    assert first == ("A title: why?", ("A *first* line.",), (), ("one",))
    assert after == ("Next", ("It says.",), ((("a", "b"), ("c", "d")),), ())


@pytest.mark.parametrize("name", NAMES)
def test_a_title_says_something_by_itself(decks, name, lesson, repository):
    """A title points to nothing before it; only a whole question of a check ends in a question mark."""
    texts = lesson(name).texts
    asked = {each for each, text in texts.items() if {"check", "compute"} & text.keys()}
    short = asked - titles_of(notebook_text(repository / "modules" / f"{name}.ipynb")).asked.keys()
    questions = [
        slide.title for slide in decks[name] if slide.kind == CHECK and slide.title[-1] in "?."
    ]
    assert len(questions) == len(short)
    for slide in decks[name]:
        if slide.title in questions or slide.kind == OPENING:
            continue
        assert not POINTS.search(slide.title), slide.title
        assert slide.title[-1] not in "?.:", slide.title


@pytest.mark.parametrize("name", NAMES)
def test_a_guess_stands_whole_below_its_topic(decks, name, lesson, repository):
    own = lesson(name)
    brief = titles_of(notebook_text(repository / "modules" / f"{name}.ipynb")).brief
    guesses = {each: text["guess"] for each, text in own.texts.items() if "guess" in text}
    assert brief.keys() <= guesses.keys()
    guesses = [own.filled(text) for text in (guesses | dict(brief)).values()]
    asked = [slide for slide in decks[name] if slide.kind == PREDICT]
    assert sorted(slide.lines[0] for slide in asked) == sorted(guesses)
    assert all(slide.title not in slide.lines[0] for slide in asked)


@pytest.mark.parametrize("name", NAMES)
def test_a_result_names_its_quantity_and_its_reason(decks, name):
    for slide in decks[name]:
        if slide.kind in (RESULT, ANSWER):
            said, _, reason = " ".join(slide.lines).partition(". ")
            assert re.match(r"\S+ \S+ .*: .", said), slide.title
            assert len(reason.split()) >= 6 and "…" not in reason, (slide.title, reason)
            assert not re.search(r"\b(?:below|here|on the page)\b", reason), reason


def test_the_reason_of_an_exchange_in_rings_is_the_latency_that_it_says(decks, lesson):
    """Over half of what is exposed is latency; PAT and shards within a pod come close to a step without any."""
    own = lesson("12_train_a_language_model")
    whole = float(own.result("fsdp_alone").split()[0])
    texts = [
        own.filled(f"{{{name}}}") for name in ("step_bytes", "step_pat", "step_pod", "data_alone")
    ]
    bare, pat, pod, exposed = (float(text.removesuffix(" s")) for text in texts)
    assert whole - bare > exposed / 2 and max(pat, pod) < 1.02 * bare
    slide = next(each for each in decks["12_train_a_language_model"] if each.kind == RESULT)
    assert all(text in " ".join(slide.lines) for text in texts[:3])


def test_a_predicted_decode_says_how_far_published_ones_are_off(decks):
    errors = [row.error for row in published() if row.scored and row.name.startswith("gptfast-")]
    slide = next(each for each in decks["13_serving"] if each.kind == RESULT)
    assert f"{min(errors):.0%} to {max(errors):.0%} too fast" in slide.lines[0]


def words(slide):
    """Return the words that are read on a slide: no options, no reasons beside formulas, no heading above."""
    options = re.compile(r"^[A-G]\.|^Right: |^Write down a number|^You will be able to")
    beside = slide.aside if slide.kind == EARLIER else ()
    lines = [line for line in (*slide.lines, *beside) if not options.match(line)]
    # Beside a diagram, a title; below an emblem, its caption.
    named = slide.diagram or slide.emblem or beside
    asides = () if named else slide.aside
    return (
        0
        if slide.stepwise or slide.kind == CODE
        else sum(len(line.split()) for line in (*lines, *asides))
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_slide_has_few_words_and_no_more_formulas_than_can_be_read(decks, name):
    most = {PREDICT: QUESTION, CHECK: QUESTION, OPENING: LIST, NEXT: LIST, EARLIER: 2 * QUESTION}
    for slide in decks[name]:
        own = LIST if slide.title == "In five lines" else most.get(slide.kind, WORDS)
        assert words(slide) <= own, slide.title
        assert sum(tex.count(r"\qquad") + 1 for tex in slide.formulas) <= 7, slide.title


def test_what_a_slide_leaves_out_is_in_its_notes(decks):
    for slides in decks.values():
        (five,) = (slide for slide in slides if slide.title == "In five lines")
        assert len(five.lines) == 5 and len(re.findall(r"^\d\. ", five.notes, re.M)) == 5
    title = "At the crossover, rounds cost as much as bytes"
    (slide,) = (each for each in decks["03_allreduce"] if each.title == title)
    assert "fat tree" not in " ".join(slide.lines) and "a full fat tree" in slide.notes
    (fails,) = (
        slide
        for slide in decks["12_train_a_language_model"]
        if slide.title == "Where the model fails"
    )
    assert "at different times" in fails.notes  # the last of its paragraphs


@pytest.mark.parametrize("name", NAMES)
def test_a_check_comes_at_least_every_ten_slides(decks, name, lesson):
    slides = decks[name]
    at = [number for number, slide in enumerate(slides) if slide.kind == CHECK and slide.section]
    assert len(at) >= 3 and at[0] <= 8
    assert max(b - a for a, b in pairwise(at)) <= 10
    texts = lesson(name).texts.values()
    asked = sum(bool({"check", "compute"} & text.keys()) for text in texts)
    assert sum(slide.kind == CHECK for slide in slides) == asked


@pytest.mark.parametrize("name", NAMES)
def test_formulas_have_a_message_and_their_limits_as_whole_sentences(decks, name):
    board = [slide for slide in decks[name] if slide.kind == BOARD and slide.formulas]
    shown = [slide for slide in board if not slide.stepwise]
    assert all(len(slide.title.split()) >= 6 and len(slide.title) <= 90 for slide in shown)
    assumes, breaks = shown[-1].lines
    assert assumes.startswith("Assumes ") and breaks.startswith("Breaks when ")
    for slide in decks[name]:
        assert not any(line.endswith("…") for line in slide.lines), slide.title


def test_what_nvfp4_gains_is_published_and_predicted_without_its_row(decks):
    wide, predicted, narrow = (sum(parts.values()) for parts in four_bits().values())
    least = four_bits()["NVFP4, predicted"]["matmuls twice as fast"]
    title = f"In the same layout, NVFP4 is {wide / narrow:.2f} times as fast as MXFP8, not twice"
    (slide,) = (each for each in decks["12_train_a_language_model"] if each.title == title)
    assert f"twice as fast give {wide / least:.2f} times" in slide.lines[0]
    assert f"{wide / predicted:.2f} times is predicted" in slide.lines[1]


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_with_controls_says_where_they_stand(decks, name):
    shown = [slide for slide in decks[name] if slide.kind == RESULT]
    assert name[:2] in ("01", "11") or any(
        re.search(r"^Live, set: \S.*[\w%)]\.$", each.notes, re.M) for each in shown
    )


def test_no_line_has_the_mark_of_a_list(decks):
    assert not [
        each
        for slides in decks.values()
        for each in slides
        if "- " in {line[:2] for line in each.lines}
    ]


def test_formulas_of_one_line_are_apart_where_there_is_room(decks):
    title = "Steps, samples and time follow from the critical batch"
    (slide,) = (each for each in decks["06_large_batch_lars"] if each.title == title)
    assert len(slide.formulas) == 3 and not any("qquad" in tex for tex in slide.formulas)
    (slide,) = (
        each for each in decks["09_state_and_failures"] if r"\qquad" in "".join(each.formulas)
    )
    assert len(slide.formulas) < sum(tex.count(r"\qquad") + 1 for tex in slide.formulas) > 4


def test_the_first_sentences_and_failing_them_the_first_clauses():
    assert first("One two. Three four five. Six.", 5) == "One two. Three four five."
    assert first("One two (three), four five, six seven.", 5) == "One two, four five …"
    assert first("One two three four.", 3) == first("One.", 0) == ""


@pytest.mark.parametrize("title", ["How long is it?", "What then", "They wait", "Its share"])
def test_a_title_that_points_to_nothing_is_seen(title):
    assert POINTS.search(title)


def test_a_guess_without_a_topic_is_refused(lesson):
    with pytest.raises(SpecError, match=r"no title for 'higher_peak' in \[asked\]"):
        list(checks(lesson("01_one_step"), Titles({}, {}), ["higher_peak"]))


def test_a_check_has_its_whole_question_as_title_where_that_is_short(decks):
    titles = [slide.title for slide in decks["03_allreduce"] if slide.kind == CHECK]
    assert titles[0].startswith("A colleague says") and titles[0].endswith(
        "What does that overlook?"
    )
    assert max(map(len, titles)) <= 125


def test_a_misconception_has_what_exposes_it():
    notes = "## Misconceptions, and so on\n\n- *One is two.* Ask for\n  three.\n- *Two* of it.\n\n## Next\n\n- *No.*"
    assert misconceptions(notes) == [("One is two.", "Ask for three."), ("Two", "of it.")]


def test_the_notes_of_a_figure_say_what_to_look_for_unless_it_is_another_one(decks):
    shown = [slide for slide in decks["02_data_parallel"] if slide.kind == RESULT]
    assert "\nLook for the buckets" in shown[0].notes and "Look for" not in shown[1].notes
    assert shown[0].source.startswith("Figure: One step, rank by rank")


def test_a_figure_may_have_settings_of_its_own(decks):
    (slide,) = (each for each in decks["12_train_a_language_model"] if "Without" in each.title)
    own, llama = slide.figure.data["sums"]["words"]
    assert own != llama


def test_what_is_known_beforehand_stands_uncovered_beside_its_question(decks):
    asked = [slide for slide in decks["11_traces_and_waits"] if slide.kind == PREDICT]
    assert [bool(slide.figure) for slide in asked] == [True, True, True, False, False]
    assert [slide.covered for slide in asked] == [True, False, True, False, False]
    assert "An ordinary mpi4py program" in asked[3].notes and "workflow" in asked[4].notes


def test_sentences_end_where_they_end():
    text = "Goyal et al. 2017 lost a tenth. Next (of it) 2 things. Twice (or more.) A 1. b"
    first, *others = sentences(text)
    assert first == "Goyal et al. 2017 lost a tenth."
    assert others == ["Next (of it) 2 things.", "Twice (or more.)", "A 1. b"]


def test_text_loses_its_marks():
    assert plain("[doi:10.1/S(06)8](https://doi.org/10.1/S(06)8).") == "doi:10.1/S(06)8."
    assert (
        plain("**It** takes $2\\lg p\\,\\alpha$ of [this](x.md), *`a`*")
        == "It takes 2 lg p α of this, a"
    )


def test_a_notebook_without_questions_is_refused():
    with pytest.raises(SpecError, match="no questions"):
        lesson_of("print(1)")


def test_no_diagram_beside_a_guess_names_its_result(decks):
    for slides in decks.values():
        for slide in slides:
            if slide.kind == PREDICT and slide.diagram:
                result = re.search(r"^It is (.+?)\.(?: |$)", slide.notes, re.M)[1]
                named = {shape.text for shape in slide.diagram.shapes}
                options = {line[3:] for line in slide.lines if re.match(r"[A-E]\. ", line)}
                assert result not in named or result in options <= named, slide.title
