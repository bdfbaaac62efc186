"""Buttons Run and Cancel for work that starts ranks: done in a thread, told as it goes, ended when asked to."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ipywidgets

from lib_dlhpc.comparison.comparison import Begin
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.charts import State
from lib_dlhpc.explore.blocks.figure import Figure
from lib_dlhpc.explore.blocks.panels import problem_html
from lib_dlhpc.explore.blocks.style import PAGE_STYLE
from lib_dlhpc.explore.blocks.workbench import verdict_html
from lib_dlhpc.explore.failures.folder import Folder
from lib_dlhpc.launch.local import Job, JobError

Thread = Callable[..., Any]  # in what ranks are watched


class Panel:
    """The buttons, what is said, and a figure and a table below, empty until there is something to show.

    work: called in a thread after a click. It tells what goes on with `say`, gives `look` to whatever starts
    ranks, so that Cancel ends them, and calls `show`. A SpecError or JobError is told in place of a result.
    """

    def __init__(
        self,
        label: str,
        figure: Figure,
        work: Callable[[], None],
        thread: Thread = threading.Thread,
    ) -> None:
        self.figure, self.work, self.thread = figure, work, thread
        self.run = ipywidgets.Button(
            description=label, button_style="primary", tooltip="Takes some seconds"
        )
        self.cancel = ipywidgets.Button(
            description="Cancel", tooltip="Ends all ranks", disabled=True
        )
        self.said, self.table = ipywidgets.HTML(), ipywidgets.HTML()
        self.below = ipywidgets.VBox([])
        self.busy = False
        self._stop = threading.Event()
        buttons = ipywidgets.HBox([self.run, self.cancel])
        self.widget = ipywidgets.VBox([buttons, self.said, self.below])
        self.run.on_click(lambda _: self._clicked())
        self.cancel.on_click(lambda _: self._stop.set())

    def say(self, words: str) -> None:
        """Tell what goes on; HTML."""
        self.said.value = verdict_html(words)

    def look(self, job: Job) -> None:
        """End a run where Cancel was pressed."""
        if self._stop.is_set():
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

    def _clicked(self) -> None:
        self.run.disabled, self.cancel.disabled, self.busy = True, False, True
        self._stop.clear()
        self.thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        try:
            self.work()
        except (JobError, SpecError) as reason:
            stopped = self._stop.is_set()
            self.said.value = verdict_html("Cancelled.") if stopped else problem_html(str(reason))
        finally:
            self.busy = False
            self.run.disabled, self.cancel.disabled = False, True


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
