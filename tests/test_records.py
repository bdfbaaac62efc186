"""Records are dataclasses in all but what their import takes."""

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from dataclasses import field
from types import SimpleNamespace

import pytest

from lib_dlhpc import records


def classes(dataclass, **options):
    """Return a class that has all that records support, made by this decorator, and a class that inherits from it."""

    @dataclass(**options)
    class Machine:
        """A machine."""

        name: str
        nodes: "int" = 1
        links: dict[str, float] = field(default_factory=dict, hash=False)
        notes: tuple[str, ...] = field(default=(), compare=False)
        secret: int = field(default=7, repr=False)

        @property
        def twice(self) -> int:
            return 2 * self.nodes

    class Larger(Machine):
        """Another class of the same fields."""

    Machine.__qualname__, Larger.__qualname__ = "Machine", "Larger"
    return SimpleNamespace(Machine=Machine, Larger=Larger)


OPTIONS = [
    {"frozen": frozen, **more}
    for frozen in (True, False)
    for more in ({}, {"eq": False}, {"repr": False})
]
ARGUMENTS = [
    (("a",), {}),
    ((), {"name": "a"}),
    (("a", 2, {"x": 1.0}, ("n",), 8), {}),
    (("a",), {"links": {"x": 1.0}, "nodes": 3}),
    ((), {}),
    ((), {"nodes": 1}),
    (("a",), {"name": "b"}),
    (("a",), {"node": 1}),
    (("a", 1, {}, (), 7, 8), {}),
    ((), {"node": 1, "nodes": 1}),
]
DEEDS = [
    repr,
    hash,
    dataclasses.asdict,
    dataclasses.astuple,
    copy.copy,
    lambda one: one == copy.deepcopy(one),
    lambda one: one == dataclasses.replace(one, notes=("other",)),
    lambda one: one == dataclasses.replace(one, nodes=99),
    lambda one: dataclasses.replace(one, node=1),
    lambda one: one == 3,
    lambda one: (setattr(one, "nodes", 5), one.nodes),
    lambda one: (setattr(one, "other", 5), one.other),
    lambda one: delattr(one, "nodes"),
    lambda one: delattr(one, "other"),
    lambda one: list(vars(one)),
    lambda one: one.twice,
]


def said(deed, *arguments, **named):
    """Return in words what a call returns or raises."""
    try:
        return str(deed(*arguments, **named))
    except (TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"


def plain(text):
    """The same without addresses and the function around the class."""
    return text.replace("classes.<locals>.", "").split(" object at ")[0]


@pytest.mark.parametrize("often", [1, records.OFTEN])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_record_does_what_a_dataclass_does(options, often, monkeypatch):
    """Of objects made by the loop and by what is compiled, and of classes that inherit."""
    monkeypatch.setattr(records, "OFTEN", often)
    ours = classes(records.dataclass, **options)
    theirs = classes(dataclasses.dataclass, **options)
    for kind in ("Machine", "Larger"):
        made, wanted = getattr(ours, kind), getattr(theirs, kind)
        for given, named in ARGUMENTS:
            answer = said(wanted, *given, **named)
            assert plain(said(made, *given, **named)) == plain(answer)
            for deed in DEEDS * (not answer.startswith("TypeError")):
                found, right = (said(deed, each(*given, **named)) for each in (made, wanted))
                if "eq" not in options or deed is not hash:
                    assert plain(found) == plain(right)
        assert str(inspect.signature(made)) == str(inspect.signature(wanted))
        assert made.__match_args__ == wanted.__match_args__
        assert made("a") != wanted("a")
    assert [str(each) for each in dataclasses.fields(ours.Machine)] == [
        str(each) for each in dataclasses.fields(theirs.Machine)
    ]


def test_what_a_class_says_itself_is_kept():
    @records.dataclass(frozen=True)
    class Own:
        value: int

        def __init__(self, value):
            object.__setattr__(self, "value", value + 1)

        def __eq__(self, other):
            return True

        def __repr__(self):
            return "own"

    assert repr(Own(1)) == "own" and Own(1) == Own(2) and Own(1).value == 2
    assert hash(Own(1)) == hash(Own(1))


@records.dataclass(frozen=True)
class Kept:
    """Of this file, so that it is pickled."""

    name: str
    items: list[int] = field(default_factory=list)


def test_a_record_is_pickled_and_shares_no_default():
    assert pickle.loads(pickle.dumps(Kept("a", [1]))) == Kept("a", [1])
    one, other = Kept("a"), Kept("b")
    one.items.append(1)
    assert other.items == []


def test_a_prediction_compiles_no_text():
    """Compiling the methods of its dataclasses took two fifths of the time of `import numpy`."""
    code = "\n".join(
        [
            "import sys",
            "found = []",
            "def hook(event, given):",
            "    if event == 'exec' and '__create_fn__' in given[0].co_names:",
            "        found.append(sys._getframe(3))",
            "sys.addaudithook(hook)",
            "from lib_dlhpc.cli import main",
            "main(['predict', 'goyal-2017'])",
            "print(*found, sep='\\n', file=sys.stderr)",
        ]
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0 and "time to train" in run.stdout
    assert run.stderr.strip() == ""


def test_what_is_remembered_is_made_once_and_leaves_attributes_quick_to_read():
    made = []

    @records.dataclass(frozen=True)
    class Layer:
        name: str

        @records.remembered
        def letters(self):
            """Its letters."""
            made.append(self.name)
            return len(self.name)

    one = Layer("conv")
    assert (one.letters, one.letters, made) == (4, 4, ["conv"])
    assert Layer.letters.__doc__ == "Its letters."
    assert dataclasses.replace(one, name="add").letters == 3
    assert one == Layer("conv")


@pytest.mark.parametrize(
    "given",
    [{"__post_init__": print}, {"size": dataclasses.field(init=False)}],
    ids=["a check after init", "a field without init"],
)
def test_what_is_not_supported_is_refused(given):
    kind = type("Odd", (), {"__annotations__": {"size": int}, **given})
    with pytest.raises(
        TypeError, match=r"Odd: no __post_init__ .* dataclasses\.dataclass has them"
    ):
        records.dataclass(kind)
