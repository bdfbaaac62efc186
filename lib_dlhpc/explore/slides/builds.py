"""What appears at a click in PowerPoint: the timing of a slide, as XML (ECMA-376 part 1, 19.5).

timing([[shape(4), shape(7)], [line(5, 3)]])  # two shapes at the first click, a line of a text at the second
"""

from collections.abc import Iterator, Sequence
from itertools import count

NAMESPACE = "http://schemas.openxmlformats.org/presentationml/2006/main"


def shape(number: int) -> str:
    """Return what names a shape by its number on the slide."""
    return f'<p:spTgt spid="{number}"/>'


def line(number: int, at: int) -> str:
    """Return what names a line of a shape's text, counted from 0."""
    return f'<p:spTgt spid="{number}"><p:txEl><p:pRg st="{at}" end="{at}"/></p:txEl></p:spTgt>'


def timing(clicks: Sequence[Sequence[str]]) -> str:
    """Return the timing of a slide; clicks: the targets that appear at each click."""
    ids = count(3)
    shown = "".join(_click(targets, ids) for targets in clicks)
    turns = "".join(
        f'<p:{name}CondLst><p:cond evt="on{event}" delay="0"><p:tgtEl><p:sldTgt/></p:tgtEl></p:cond></p:{name}CondLst>'
        for name, event in (("prev", "Prev"), ("next", "Next"))
    )
    return (
        f'<p:timing xmlns:p="{NAMESPACE}"><p:tnLst><p:par>'
        '<p:cTn id="1" dur="indefinite" restart="never" nodeType="tmRoot"><p:childTnLst>'
        '<p:seq concurrent="1" nextAc="seek"><p:cTn id="2" dur="indefinite" nodeType="mainSeq">'
        f"<p:childTnLst>{shown}</p:childTnLst></p:cTn>{turns}</p:seq>"
        "</p:childTnLst></p:cTn></p:par></p:tnLst></p:timing>"
    )


def _click(targets: Sequence[str], ids: Iterator[int]) -> str:
    """Return what one click shows: the first target at the click, the others with it."""
    outer, inner = next(ids), next(ids)
    shown = "".join(
        _appears(target, "withEffect" if number else "clickEffect", ids)
        for number, target in enumerate(targets)
    )
    return _after("indefinite", outer, _after("0", inner, shown))


def _after(delay: str, number: int, content: str) -> str:
    return (
        f'<p:par><p:cTn id="{number}" fill="hold"><p:stCondLst><p:cond delay="{delay}"/></p:stCondLst>'
        f"<p:childTnLst>{content}</p:childTnLst></p:cTn></p:par>"
    )


def _appears(target: str, when: str, ids: Iterator[int]) -> str:
    """Return the effect Appear, number 1 of the entrances."""
    now = '<p:stCondLst><p:cond delay="0"/></p:stCondLst>'
    return (
        f'<p:par><p:cTn id="{next(ids)}" presetID="1" presetClass="entr" presetSubtype="0" fill="hold"'
        f' nodeType="{when}">{now}<p:childTnLst><p:set><p:cBhvr>'
        f'<p:cTn id="{next(ids)}" dur="1" fill="hold">{now}</p:cTn><p:tgtEl>{target}</p:tgtEl>'
        "<p:attrNameLst><p:attrName>style.visibility</p:attrName></p:attrNameLst></p:cBhvr>"
        '<p:to><p:strVal val="visible"/></p:to></p:set></p:childTnLst></p:cTn></p:par>'
    )
