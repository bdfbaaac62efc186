"""Work that takes seconds, from a page that stays alive: Run and Cancel, how far it is, and why it failed.

runner = Runner("Train", work)          work(runner) runs in a thread after a click
runner.say("2 of 5 runs", 0.4)          what the page shows meanwhile
runner.check()                          raises Cancelled once Cancel was clicked
runner.widget                           the buttons and the line below them
"""

import threading
from collections.abc import Callable
from typing import Any

import ipywidgets

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.panels import problem_html
from lib_dlhpc.explore.blocks.workbench import verdict_html
from lib_dlhpc.launch.local import JobError

Thread = Callable[..., Any]  # in what the work is done; tests give one that runs at once


class Cancelled(Exception):
    """The visitor clicked Cancel."""


class Runner:
    """Two buttons and a line of text. At most one run at a time.

    work: called with this runner; a SpecError, JobError, RuntimeError or OSError is shown, Cancelled is named, and in
    any case the buttons come back. refuse: says why it cannot run now, or "".
    """

    def __init__(
        self,
        label: str,
        work: Callable[["Runner"], None],
        idle: str = "",
        tooltip: str = "Takes some seconds",
        thread: Thread = threading.Thread,
        refuse: Callable[[], str] = lambda: "",
    ) -> None:
        self.run = ipywidgets.Button(
            description=label, button_style="primary", tooltip=tooltip, layout={"width": "auto"}
        )
        self.cancel = ipywidgets.Button(
            description="Cancel", tooltip="Ends what it started", disabled=True
        )
        self.said = ipywidgets.HTML(verdict_html(idle) if idle else "")
        self.widget = ipywidgets.VBox([ipywidgets.HBox([self.run, self.cancel]), self.said])
        self.offered, self.stop = True, threading.Event()
        self.work, self.thread, self.refuse = work, thread, refuse
        self.run.on_click(lambda _: self.start())
        self.cancel.on_click(lambda _: self.stop.set())

    @property
    def busy(self) -> bool:
        """Whether work is in progress."""
        return not self.cancel.disabled

    def offer(self, can: bool) -> None:
        """Let the visitor click Run, or not; while work is in progress, once it is done."""
        self.offered = can
        if not self.busy:
            self.run.disabled = not can

    def start(self) -> None:
        """Begin, as a click does; nothing happens while work is in progress."""
        if self.busy:
            return
        if problem := self.refuse():
            self.said.value = problem_html(problem)
            return
        self.run.disabled, self.cancel.disabled = True, False
        self.stop.clear()
        self.thread(target=self._run, daemon=True).start()

    def say(self, words: str, share: float | None = None) -> None:
        """Show what goes on; HTML. share: how much is done, from 0 to 1, where that is known."""
        label = 'aria-label="Progress"'
        bar = "" if share is None else f'<progress {label} max="1" value="{share:.3f}"></progress> '
        self.said.value = verdict_html(bar + words)

    def check(self) -> None:
        """Raise Cancelled once Cancel was clicked."""
        if self.stop.is_set():
            raise Cancelled

    def pause(self, seconds: float) -> None:
        """Wait; raise Cancelled at once when Cancel is clicked."""
        if self.stop.wait(seconds):
            raise Cancelled

    def _run(self) -> None:
        try:
            self.work(self)
        except Cancelled:
            self.say("Cancelled.")
        except (SpecError, JobError, RuntimeError, OSError) as reason:
            if self.stop.is_set():
                self.say("Cancelled.")
            else:
                self.said.value = problem_html(str(reason))
        finally:
            self.cancel.disabled = True
            self.run.disabled = not self.offered
