"""A slide: what it shows, what to say, and what it is for."""

from typing import NamedTuple

from lib_dlhpc.explore.blocks.figure import Figure
from lib_dlhpc.explore.slides.diagram import Diagram

OPENING, PREDICT, RESULT, CHECK = "Question", "Predict", "Result", "Check"
ANSWER, CODE, AGENDA = "Answer", "Code", "Agenda"
EARLIER, IDEA, BOARD, END = "From earlier modules", "Idea", "At the board", "Summary"
WORDS, QUESTION, LIST = 40, 45, 60  # on a slide at most: of prose, of a question, of a list
DISCUSS, NEXT = "Discuss", "Next"
RIGHT = "Right: "  # begins the line of an answer, which appears last
PUBLISHED, REAL = "Published", "Do it for real"


class Slide(NamedTuple):
    """A slide: its title, its lines, what to say, and the figure, or the formulas as TeX, that it shows, if any.

    kind: what it is for; section: the heading of the notebook that it belongs to. covered: whether the result of the
    figure is hidden. stepwise: whether each formula stands beside one line, its reason, and the lines left over below
    them. table: rows of cells, a heading first. aside: lines beside the others. source: where what it shows is from.
    diagram: what is drawn beside its lines. optional: whether the 50 minutes of a class leave it out. live: the file of
    the page that has its figure, and the fragment of the figure as it stands. vote: the module and the name of what it
    asks, as the board of a class has them. emblem: the folder of the module whose small picture, that of the front
    page, it shows.
    """

    title: str
    lines: tuple[str, ...] = ()
    notes: str = ""
    figure: Figure | None = None
    formulas: tuple[str, ...] = ()
    stepwise: bool = False
    kind: str = ""
    table: tuple[tuple[str, ...], ...] = ()
    section: str = ""
    covered: bool = False
    aside: tuple[str, ...] = ()
    source: str = ""
    diagram: Diagram | None = None
    optional: bool = False
    live: str = ""
    vote: str = ""
    emblem: str = ""

    @property
    def unfolds(self) -> bool:
        """Whether its diagram appears part by part; a check repeats one that was shown before."""
        return self.kind != CHECK

    @property
    def described(self) -> str:
        """What its figure shows, for those who cannot see it; not what is covered."""
        if self.figure is None:
            return ""
        return (
            f"{self.figure.title} The result is covered." if self.covered else self.figure.summary
        )
