"""Ten questions for each module and a concept test: options that differ, each wrong one with its misconception."""

import ast
import re
from itertools import combinations

import pytest

from lib_dlhpc.explore.course import PATH
from lib_dlhpc.teaching.numbers import value
from lib_dlhpc.teaching.questions import read

NAMES = [module.name for module in PATH]
WITH_TWELVE = ("02_data_parallel", "13_serving")
WITH_ELEVEN = (
    "01_one_step",
    "03_allreduce",
    "05_hybrid_parallel",
    "08_memory_and_out_of_core",
    "10_energy_and_planning",
    "12_train_a_language_model",
)
CLOSE = 0.03  # numbers that differ by less are one answer, rounded
SEEDS = range(6)
HEDGED = re.compile(r"\b(may|might|can|could|depends?|usually|sometimes)\b")
ABSOLUTE = re.compile(r"\b(never|always|nothing|none|nobody|whatever|however|cannot)\b", re.I)
TERMS = re.compile(r"ZeRO \d|1F1B|float64|1 \+ 7")  # digits of names


def plain(sentence):
    return sentence.rstrip(".").lower()


@pytest.fixture
def concept(repository):
    return read(repository / "instructor_notes" / "concept_test.py", "QUESTIONS")


@pytest.fixture
def form_b(repository):
    return read(repository / "instructor_notes" / "concept_test_b.py", "QUESTIONS")


def check(question):
    every = [question.right, *question.wrong]
    assert len(set(every)) == 4, question.name
    assert all(len(reason.split()) >= 3 for reason in question.wrong.values()), question.name
    assert len(set(question.wrong.values())) == 3, question.name
    assert question.because.endswith("."), question.name
    numbers = [number for option in every if (number := value(option)) is not None]
    for one, other in combinations(numbers, 2):
        assert abs(one - other) > CLOSE * max(abs(one), abs(other)), (question.name, one, other)


@pytest.mark.parametrize("name", NAMES)
def test_a_module_has_ten_to_twelve_questions_whose_options_differ(questions, name):
    for seed in SEEDS:
        found = questions(name, seed)
        many = 10 + (name in WITH_ELEVEN) + 2 * (name in WITH_TWELVE)
        assert len({question.name for question in found}) == len(found) == many
        for question in found:
            check(question)


@pytest.mark.parametrize("name", NAMES)
def test_each_misconception_of_the_notes_leads_to_a_wrong_option(questions, repository, name):
    notes = (repository / "instructor_notes" / f"{name}.md").read_text("utf-8")
    section = notes.split("## Misconceptions", 1)[1].split("\n## ")[0]
    listed = {
        plain(each)
        for line in re.findall(r"^- (\*.+)", section, re.M)
        for each in re.findall(r"\*([^*]+)\*", line)[:1]
    }
    assert len(listed) > 4
    found = {plain(reason) for question in questions(name) for reason in question.wrong.values()}
    assert listed <= found


def outstanding(items, beats):
    """Return the items whose right option beats each wrong one in length."""
    return [q.name for q in items if all(beats(len(q.right), len(wrong)) for wrong in q.wrong)]


def test_the_length_of_an_option_tells_nothing_in_the_concept_test(concept, form_b):
    """Of four options each is the longest, or the shortest, in a quarter of the items by chance."""
    for form in (concept, form_b):
        assert len(outstanding(form, int.__gt__)) <= len(form) / 3
        assert len(outstanding(form, int.__lt__)) <= 0.35 * len(form)


def test_the_length_of_an_option_tells_little_in_the_exams(questions):
    for seed in SEEDS:
        items = [question for name in NAMES for question in questions(name, seed)]
        assert len(outstanding(items, int.__gt__)) <= len(items) / 3
        assert len(outstanding(items, int.__lt__)) <= len(items) / 2


def test_the_right_option_in_words_does_not_stand_out_by_its_length(questions):
    """Numbers are about equally long, so items in words are judged apart from them."""
    for seed in SEEDS:
        items = [question for name in NAMES for question in questions(name, seed)]
        words = [question for question in items if value(question.right) is None]
        assert len(words) > 20
        assert not outstanding(words, lambda right, wrong: right > 1.15 * wrong)
        assert len(outstanding(words, int.__gt__)) <= len(words) / 4
        assert len(outstanding(words, int.__ge__)) <= len(words) / 3  # ties as well
        assert len(outstanding(words, int.__le__)) <= len(words) / 3


def test_no_option_is_right_because_it_alone_is_careful(questions, concept, form_b):
    """Who knows nothing picks the option that may be true, and drops those that are never true."""
    words = [q for name in NAMES for q in questions(name) if value(q.right) is None]
    for item in (*words, *concept, *form_b):
        assert not HEDGED.search(item.right), item.name
    for form in (words, concept, form_b):
        careful = [
            item.name
            for item in form
            if not ABSOLUTE.search(item.right)
            and sum(map(bool, map(ABSOLUTE.search, item.wrong))) > 1
        ]
        assert len(careful) <= 0.05 * len(form), careful


def test_the_rank_of_a_number_among_its_options_tells_little(questions):
    """Four numbers in order: who picks the second smallest each time is right in a third of the items at most."""
    ranks = [
        sorted(numbers).index(numbers[0])
        for seed in SEEDS
        for name in NAMES
        for q in questions(name, seed)
        if None not in (numbers := [value(option) for option in (q.right, *q.wrong)])
    ]
    for rank in range(4):
        assert 0.15 <= ranks.count(rank) / len(ranks) <= 0.34, rank


def test_form_b_has_the_misconceptions_of_the_first_ten_items_in_other_words(concept, form_b):
    for one, other in zip(concept[:10], form_b, strict=True):
        check(other)
        assert one.name == other.name and set(one.wrong.values()) == set(other.wrong.values())
        assert one.text != other.text and not {one.right, *one.wrong} & {other.right, *other.wrong}


def test_the_concept_test_has_28_items_that_are_not_in_the_exam(concept, questions):
    assert len({question.name for question in concept}) == len(concept) == 28
    for question in concept:
        check(question)
    assert not {item.text for item in concept} & {q.text for name in NAMES for q in questions(name)}


def test_the_last_items_of_the_concept_test_are_about_language_models(concept):
    """Layouts, experts, fp8, decoding, batches and the KV cache: what modules 12 and 13 teach."""
    asked = " ".join(f"{item.text} {item.because}" for item in concept[20:])
    for word in ("FSDP", "Tensor", "router", "fp8", "memory bandwidth", "users", "KV cache"):
        assert word in asked, word
    assert not re.search(r"experts|fp8|KV cache", " ".join(item.text for item in concept[:20]))


def typed(node):
    """Yield the digits that stand in an option as text; what is computed is not text."""
    for part in ast.walk(node):
        if isinstance(part, ast.FormattedValue):
            part.format_spec = None
    parts = (
        [node]
        if isinstance(node, ast.Constant)
        else node.values
        if isinstance(node, ast.JoinedStr)
        else []
    )
    for part in parts:
        if isinstance(part, ast.Constant) and re.search(r"\d", TERMS.sub("", str(part.value))):
            yield part.value


def options_of(source):
    """Yield the syntax of every option of a file of questions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Question":
            yield node.args[2]
            yield from node.args[3].keys


@pytest.mark.parametrize("name", NAMES)
def test_no_number_of_an_option_is_typed(repository, name):
    source = (repository / "instructor_notes" / "exam" / f"{name}.py").read_text("utf-8")
    found = list(options_of(source))
    assert len(found) >= 40
    assert not [text for node in found for text in typed(node)]


def test_a_typed_number_is_found():
    source = 'Question("a", "b", "12 ms", {f"{x} ms": "c", f"2 of {x}": "d", "ZeRO 1": "e"}, "f")'
    assert [text for node in options_of(source) for text in typed(node)] == ["12 ms", "2 of "]
