"""Texts and numbers of problems are joined by name, and what does not match is refused with the legal names."""

import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.teaching.problem_texts import Numbers, written
from lib_dlhpc.teaching.problems import FADED, Step, Trap

TEXTS = """
[shared]
LINK = "A link sends {RATE:B/s}."

[ring]
title = "A ring of {RANKS}"
kind = "faded"
text = "{LINK} How long does {size:B} take?"
steps = [["Rounds", "rounds"], ["Over {RANKS} ranks", "total", "s"]]
traps = [["once", "Not {rounds}, but one round."]]

[tree]
title = "A tree"
text = "How many rounds?"
steps = [["Rounds", "RANKS"]]
"""


def problems(tmp_path, text=TEXTS, tree=None, **changed):
    (tmp_path / "problems.toml").write_text(text, "utf-8")
    names = {"__file__": str(tmp_path / "problems.py"), "RANKS": 4, "RATE": 2e9}
    ring = {"rounds": 6, "total": 0.5, "once": 0.25, "size": 1e6} | changed
    return written(names, tree=tree or Numbers(4), ring=Numbers(0.5, **ring))


def test_they_are_joined_by_name_in_the_order_of_the_texts(tmp_path):
    ring, tree = problems(tmp_path)
    assert (ring.title, ring.kind, ring.answer) == ("A ring of 4", FADED, 0.5)
    assert ring.text == "A link sends 2 GB/s. How long does 1 MB take?"
    assert ring.steps == (Step("Rounds", 6), Step("Over 4 ranks", 0.5, "s"))
    assert ring.traps == [Trap(0.25, "Not 6, but one round.")]
    assert tree.steps == (Step("Rounds", 4),)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            '"total", "s"',
            '"totl", "s"',
            "ring: nothing is called 'totl': Did you mean 'total'.*RATE",
        ),
        ("{size:B}", "{siz:B}", "ring: nothing is called 'siz': Did you mean 'size'"),
        ("{size:B}", "it", "ring: nothing uses the number 'size'"),
        ("{RANKS} ranks", "{RANKS.many} ranks", "ring: .*no attribute 'many'"),
        ('"faded"', '"fade"', "ring: kind = 'fade': Did you mean 'faded'"),
        ("traps =", "trap =", "ring: no key is called 'trap': Did you mean 'traps'"),
        ("[tree]", "[trees]", "problems.toml has no problem 'tree'"),
        ("[ring]", "[star]\n[ring]", "problems.py has no numbers for 'star'.*tree, ring"),
        ('["Rounds", "RANKS"]', '["Rounds"]', "tree: .*unpack"),
    ],
)
def test_what_does_not_match_is_refused(tmp_path, old, new, words):
    assert old in TEXTS
    with pytest.raises(SpecError, match=words) as refused:
        problems(tmp_path, TEXTS.replace(old, new))
    assert str(tmp_path) in str(refused.value)


def test_a_number_that_nothing_uses_is_refused(tmp_path):
    with pytest.raises(SpecError, match="tree: nothing uses the number 'depth'"):
        problems(tmp_path, tree=Numbers(4, depth=2))
