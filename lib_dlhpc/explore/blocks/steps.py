"""A slider over named steps that may be exchanged while it is on the page."""

from typing import Any

import ipywidgets
import traitlets


class Steps(ipywidgets.VBox):
    """Stands at one of `options`, pairs of a label and a value.

    Other options bring a new slider: the browser would fit the old one's place to them and report
    that as a visitor's move. What a slider that is gone still reports is not heard.
    """

    value = traitlets.Any()
    options: traitlets.List = traitlets.List()

    def __init__(self, description: str, tooltip: str, **look: Any) -> None:
        super().__init__()
        self._slider: Any = None
        self._look = {"description": description, "tooltip": tooltip, **look}

    def offer(self, options: list[tuple[str, Any]], value: Any) -> None:
        """Make the slider offer `options` and stand at `value`.

        Steps stay while they still serve, so that a slider is not exchanged under a visitor's hand.
        """
        served = [step for _, step in self.options]
        if value in served and self.options[-1] == options[-1]:
            self._slider.value = value
        else:
            slider = ipywidgets.SelectionSlider(options=options, value=value, **self._look)
            slider.observe(self._moved, "value")
            self._slider, self.options, self.children = slider, options, (slider,)
        self.value = value

    def _moved(self, event: Any) -> None:
        if event["owner"] is self._slider:
            self.value = event["new"]
