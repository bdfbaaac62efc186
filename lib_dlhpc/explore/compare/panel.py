"""A run of ranks on a page, with a figure and a table below it; its folders go with the page's kernel."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ipywidgets

from lib_dlhpc.comparison.comparison import Begin
from lib_dlhpc.explore.blocks.charts import State
from lib_dlhpc.explore.blocks.figure import Figure
from lib_dlhpc.explore.blocks.folder import Folder
from lib_dlhpc.explore.blocks.runner import Runner, Thread
from lib_dlhpc.explore.blocks.style import PAGE_STYLE
from lib_dlhpc.launch.local import Job, JobError


class Panel(Runner):
    """A runner with a figure and a table below it, empty until there is something to show.

    work: gives `look` to whatever starts ranks, so that Cancel ends them, and calls `show`.
    """

    def __init__(
        self,
        label: str,
        figure: Figure,
        work: Callable[[], None],
        thread: Thread = threading.Thread,
    ) -> None:
        super().__init__(label, lambda _: work(), thread=thread)
        self.figure, self.table = figure, ipywidgets.HTML()
        self.below = ipywidgets.VBox([])
        self.widget.children = (*self.widget.children, self.below)

    def look(self, job: Job) -> None:
        """End a run where Cancel was pressed."""
        if self.stop.is_set():
            job.cancel()
            raise JobError("The run was cancelled.")

    def show(self, state: State, table: str = "") -> None:
        """Show a state of the figure, and a table below it; HTML."""
        self.figure.update(*state)
        self.table.value = table
        self.below.children = (self.figure, self.table)

    def clear(self) -> None:
        """Show nothing below the buttons."""
        self.below.children = ()


@contextmanager
def no_longer_than_the_page(begin: Begin) -> Iterator[Begin]:
    """Give what starts ranks as `begin` does; the folders of its runs go at the end, or with this page's kernel."""
    kept: list[Folder] = []

    def begun(*words: Any) -> Job:
        job = begin(*words)
        kept.append(Folder("run", job.folder))
        return job

    try:
        yield begun
    finally:
        for folder in kept:
            folder.remove()


def styled(widget: ipywidgets.VBox) -> ipywidgets.VBox:
    """Give a widget that stands alone in a notebook the page's style."""
    style = ipywidgets.HTML(PAGE_STYLE)
    style.add_class("dlhpc-hidden")
    widget.add_class("dlhpc-results")
    widget.children = (*widget.children, style)
    return widget
