"""What a page runs on this machine, with a figure and a table below the buttons."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from threading import RLock
from typing import Any, Generic, NamedTuple, TypeVar

import ipywidgets

from lib_dlhpc.comparison.comparison import Begin
from lib_dlhpc.explore.blocks.charts import State
from lib_dlhpc.explore.blocks.folder import Folder
from lib_dlhpc.explore.blocks.panel import Panel
from lib_dlhpc.explore.blocks.panels import notice_html
from lib_dlhpc.explore.blocks.runner import Thread
from lib_dlhpc.explore.blocks.style import PAGE_STYLE
from lib_dlhpc.launch.jobs import BatchJob
from lib_dlhpc.launch.local import Job, JobError
from lib_dlhpc.spec.experiment import Experiment

F = TypeVar("F")  # what a run comes to
Shown = tuple[State, str]  # of the figure, and HTML of the table


class RunPanel(Panel):
    """A panel whose Cancel ends the ranks that it started."""

    def look(self, job: Job | BatchJob) -> None:
        """End a run where Cancel was pressed; given to whatever starts ranks."""
        if self.stop.is_set():
            job.cancel()
            raise JobError("The run was cancelled.")


class Idle(NamedTuple):
    """What is said before a run: words, what cannot be run and why, and what is shown until then."""

    words: str
    notice: str = ""
    can_run: bool = True
    expected: Shown | None = None


class Here(ABC, Generic[F]):
    """The newest experiment, and what its newest run came to, in `found`. thread, refuse: as of Runner."""

    def __init__(
        self, label: str, figure: str, thread: Thread, refuse: Callable[[], str] = lambda: ""
    ) -> None:
        self.experiment: Experiment | None = None
        self.found: F | None = None
        self.panel = RunPanel(label, figure, lambda _: self._work(), thread=thread, refuse=refuse)
        self.widget = self.panel.widget
        self._turn = 0  # of the experiments that were taken over
        self._lock, self._working = RLock(), False  # of what is shown: a run ends in another thread

    @property
    def started(self) -> bool:
        """Whether the newest experiment is being run, or was."""
        with self._lock:
            return self._working or self.found is not None

    def _take(self, experiment: Experiment) -> None:
        """Take over another experiment: what was run of the one before is gone."""
        with self._lock:
            self.experiment, self.found = experiment, None
            self._turn += 1
            if not self._working:
                self._ready(experiment)

    def _ready(self, experiment: Experiment) -> None:
        panel, idle = self.panel, self._idle(experiment)
        if idle.expected is None:
            panel.below.children = ()
        else:
            panel.show(*idle.expected)
        panel.offer(idle.can_run)
        panel.say(idle.words)
        if idle.notice:
            panel.said.value = notice_html(idle.notice)

    def _work(self) -> None:
        with self._lock:
            self._working, turn, experiment = True, self._turn, self.experiment
        assert experiment is not None
        try:
            found = self._run(experiment)
            with self._lock:
                if turn == self._turn:
                    self.found = found
                    shown, words = self._shown(found)
                    self.panel.show(*shown)
                    self.panel.say("<br>".join(map(escape, words)))
        finally:
            with self._lock:
                self._working = False
                if turn != self._turn:
                    assert self.experiment is not None
                    self._ready(self.experiment)

    @abstractmethod
    def _idle(self, experiment: Experiment) -> Idle:
        """Return what is said of an experiment before its run."""

    @abstractmethod
    def _run(self, experiment: Experiment) -> F:
        """Run an experiment."""

    @abstractmethod
    def _shown(self, found: F) -> tuple[Shown, Any]:
        """Return what is shown of what was found, and lines of words."""


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
