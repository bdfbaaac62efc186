"""A section of the explorer: behind a button, shown only while it is open, and once the controls rest."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets

from lib_dlhpc.explore.blocks.style import Labels
from lib_dlhpc.prediction import Breakdown

REST = 0.2  # s without a move
Bands = Mapping[str, tuple[float, float]]  # (low, high) s by name, the whole step as "one step"


class Soon:
    """Calls the newest of several functions once, `rest` seconds after the last; at once without a loop."""

    def __init__(self, rest: float = REST) -> None:
        self.rest = rest
        self._waiting: asyncio.TimerHandle | None = None

    def __call__(self, act: Callable[[], None]) -> None:
        """Call `act` soon, in place of what was to be called."""
        self.cancel()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            act()
        else:
            self._waiting = loop.call_later(self.rest, act)

    @property
    def waits(self) -> bool:
        """Whether something is still to be called."""
        return self._waiting is not None

    def cancel(self) -> None:
        """Call nothing of what was to be called."""
        if self._waiting:
            self._waiting.cancel()
            self._waiting = None


class Section(ABC):
    """The newest prediction, and what is shown of it in `body`, below its name in `place`, while the section is open.

    Nothing is computed before the section is opened.
    """

    def __init__(self, name: str, rest: float = REST) -> None:
        self.opened = ipywidgets.ToggleButton(description=name, layout={"width": "auto"})
        self.title = ipywidgets.HTML(
            f'<p class="dl-title" role="heading" aria-level="2">{name}</p>'
        )
        self.body: Any = ipywidgets.VBox([])
        self.place = ipywidgets.VBox([])
        self.newest: Breakdown | None = None
        self.bands: Bands = {}
        self.soon = Soon(rest)
        self.opened.observe(lambda _: self._open() if self.opened.value else self._close(), "value")

    def follow(self, prediction: Breakdown, bands: Bands | None = None) -> None:
        """Take over another prediction; it is shown once the controls rest. bands: where they are known."""
        self.newest, self.bands = prediction, bands or {}
        if self.opened.value:
            self.soon(self.show)

    def show(self) -> None:
        """Show the newest prediction, if the section is open."""
        self.soon.cancel()
        if self.newest is not None and self.opened.value:
            self._show(self.newest)

    def catch_up(self) -> str:
        """Show now what waits for the controls to rest: a button acts on what was chosen, however soon it is clicked.

        Returns "", as what lets a Runner start.
        """
        if self.soon.waits:
            self.show()
        return ""

    @abstractmethod
    def _show(self, prediction: Breakdown) -> None:
        """Show a prediction in `body`."""

    def _open(self) -> None:
        self.place.children = (self.title, self.body)
        self.show()

    def _close(self) -> None:
        self.soon.cancel()
        self.body.children = self.place.children = ()


def control_bar(*controls: Any) -> ipywidgets.Box:
    """Return the controls of a section in a line."""
    labels = ipywidgets.VBox([Labels()])
    labels.add_class("dlhpc-hidden")
    bar = ipywidgets.Box([*controls, labels])
    bar.add_class("dlhpc-play-controls")
    return bar
