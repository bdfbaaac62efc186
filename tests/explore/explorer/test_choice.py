"""Presets, changed fields and their address: round trips, undo and redo, and what is said against A."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.address import LONGEST, VERSION, decode, encode
from lib_dlhpc.explore.explorer.against import changes_words
from lib_dlhpc.explore.explorer.choice import (
    Choice,
    History,
    experiment_of,
    read,
    value_at,
    written,
)
from lib_dlhpc.explore.explorer.controls import NAMED
from lib_dlhpc.explore.explorer.headlines import headlines
from lib_dlhpc.explore.explorer.moves import moved
from lib_dlhpc.explore.explorer.presets import names, preset
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.changes.difference import difference_words, moved_terms

VALUES = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.lists(st.integers(), max_size=3),
)


@given(st.dictionaries(st.text(min_size=1), VALUES, max_size=6))
def test_fields_survive_their_address(fields):
    text = encode(fields)
    assert text == "" or decode(f"#{text}") == (fields, ())
    assert text.isascii() and " " not in text


@given(st.text())
def test_any_text_is_decoded(text):
    fields, ignored = decode(text)
    assert fields == {} or text.removeprefix("#").startswith(VERSION)
    choice, _, more = read(fields)
    assert predict(experiment_of(choice)).step_time > 0
    assert isinstance((*ignored, *more), tuple)


def test_what_is_too_long_has_no_address():
    assert encode({"a": "x" * LONGEST}) == ""


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_choices_survive_their_address(data):
    choices = []
    for _ in range(2):
        choice = Choice(preset(data.draw(st.sampled_from(names()))))
        for field in data.draw(st.lists(st.sampled_from(sorted(NAMED)), max_size=4)):
            e = experiment_of(choice)
            if not NAMED[field].off(e):
                _, value = data.draw(st.sampled_from(NAMED[field].options(e)))
                try:
                    choice = moved(choice, field, value)[0]
                except SpecError:
                    continue
        choices.append(choice)
    choice, pinned = choices
    fields = decode(encode(written(choice, pinned))).fields
    found = read(fields)
    assert found == (choice, pinned, ())
    assert experiment_of(found[0]) == experiment_of(choice)


def test_a_field_that_is_as_in_the_preset_again_is_no_change():
    choice = Choice(preset("goyal-2017"))
    there = choice.with_changes({"strategy.nodes": 4, "times.rate": 2})
    assert there.with_changes({"strategy.nodes": 32, "times.rate": 1}) == choice


def test_another_machine_drops_what_was_changed_of_the_old_one():
    choice = Choice(preset("goyal-2017")).with_changes({"machine.nics": 4, "strategy.batch": 8})
    there = choice.with_changes({"machine.name": "summit"})
    assert there.changes == {"strategy.batch": 8, "machine.name": "summit"}
    assert there.with_changes({"machine.name": "bigbasin"}).changes == {"strategy.batch": 8}


def test_values_of_fields():
    e = preset("narayanan-2021").experiment
    assert value_at(e, "model.sequence") == 2048 and value_at(e, "model.name") == "gpt3-175b"
    assert (
        value_at(e, "machine.inter_node.bandwidth") == 25e9 and value_at(e, "run.nothing") is None
    )


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@given(st.lists(st.integers(1, 5), max_size=12))
def test_undo_and_redo_go_through_all_choices(batches):
    clock, start = Clock(), Choice(preset("goyal-2017"))
    history, seen = History(start, clock), [start]
    for batch in batches:
        clock.now += 10
        choice = start.with_changes({"strategy.batch": batch})
        history.choose(choice, ["strategy.batch"])
        if choice != seen[-1]:
            seen.append(choice)
    assert [history.now, *(history.undo() for _ in seen[1:])] == seen[::-1]
    assert not history.back and history.undo() == start
    assert [history.now, *(history.redo() for _ in seen[1:])] == seen
    assert not history.ahead and history.redo() == seen[-1]


def test_a_drag_is_one_step_back():
    clock, start = Clock(), Choice(preset("goyal-2017"))
    history = History(start, clock)
    for nodes in (16, 8, 4):
        clock.now += 0.1
        history.choose(start.with_changes({"strategy.nodes": nodes}), ["strategy.nodes"])
    clock.now += 0.1
    history.choose(start.with_changes({"strategy.batch": 8}), ["strategy.batch"])
    assert history.undo().changes == {"strategy.nodes": 4}
    assert history.undo() == start


@pytest.mark.parametrize("name", names())
def test_no_headline_of_a_preset_has_an_exponent(name):
    run = preset(name)
    for line in headlines(predict(run.experiment), run.replay):
        assert not re.search(r"\de[+-]?\d", f"{line.text} {line.remark}")


def test_the_difference_says_what_changed_and_which_term_moved():
    a = Choice(preset("goyal-2017"))
    b = a.with_changes({"strategy.overlap": False})
    then, now = (predict(experiment_of(choice)) for choice in (a, b))
    changed = changes_words(b, a)
    assert changed == "overlap on → off"
    (first, by), *rest = moved_terms(now, then)
    assert first == "gradients" and by.startswith("+") and not rest
    words = difference_words(now, then, changed)
    assert words.startswith("Against A (overlap on → off), a step takes ")
    assert "more (+" in words and "gradients +" in words
    assert "The run takes" in words and "instead of 59.8 min" in words
    back = difference_words(then, now, changes_words(a, b))
    assert "less (-" in back and "gradients −" in back and "overlap off → on" in back
    assert difference_words(then, then, "") == ""


def test_settings_without_effect_and_other_presets():
    a = Choice(preset("goyal-2017"))
    same = difference_words(predict(experiment_of(a)), predict(experiment_of(a)), "seed 1 → 2")
    assert same == "Against A (seed 1 → 2), a step takes the same time."
    words = changes_words(Choice(preset("laptop")), a)
    assert words.startswith("Digits on this laptop") and "instead of Goyal 2017" in words
    many = {
        "strategy.nodes": 4,
        "strategy.batch": 8,
        "times.rate": 2,
        "times.latency": 2,
        "run.epochs": 1.0,
    }
    assert changes_words(a.with_changes(many), a).endswith(" and 1 more")
