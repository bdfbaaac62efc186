"""Page object of a lesson in a browser: guesses, experiments and their controls, memory of a visitor."""

from collections.abc import Callable, Container, Mapping
from contextlib import ExitStack, suppress
from typing import Any

import psutil
from axe import findings, low_contrast
from patience import DIGEST, eventually

from lib_dlhpc.explore.server.serve import kernels_of

MOST_MEMORY = (
    120e6  # bytes that a visitor's kernel shares with no other; thirty must fit a classroom server
)
# Sums of all that an experiment shows: of the drawings, or of its words too.
DRAWN = f"""index => {{ const page = document.querySelectorAll(".dlhpc-page")[index].querySelector(".dlhpc-results");
  return ({DIGEST})([...page.querySelectorAll("svg")].map(svg => svg.outerHTML).join("")); }}"""
SHOWN = f"""index => ({DRAWN})(index) + ({DIGEST})(
  document.querySelectorAll(".dlhpc-page")[index].querySelector(".dlhpc-results").innerText)"""

KEYS = ("ArrowLeft", "ArrowRight", "Home", "End")

# Sets `window.seen[words]` as soon as the page shows the words, however short the time.
WATCH = """words => { window.seen ??= {}; window.seen[words] = false;
  const look = (_, observer) => {
    if (window.seen[words] = document.body.textContent.includes(words)) observer.disconnect(); };
  new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true }); }"""
# Clicks a button as soon as it is enabled: a short run may end before a test polls.
CLICK_SOON = """button => { const look = () => button.disabled ? setTimeout(look, 10) : button.click(); look(); }"""


# How many controls that cannot be used yet stay in view over the charts of a narrow window.
OVER = """() => [...document.querySelectorAll(".dlhpc-stage.covered .dlhpc-controls")]
  .filter(each => getComputedStyle(each).position === "sticky").length"""
# How many buttons that cannot be used yet leave gaps between covered charts.
GAPS = """() => [...document.querySelectorAll(".dlhpc-stage.covered .jupyter-button")]
  .filter(each => each.offsetHeight).length"""


def tells(place: Any, *words: str) -> None:
    """Wait until a place of the page shows all these words."""
    eventually(
        lambda: all(word in place.inner_text() for word in words),
        what=lambda: f"{words} in {place.inner_text()!r}",
    )


def judged(place: Any) -> bool:
    """Return whether a place shows the verdict of a comparison, or why a busy machine gets none."""
    return any(words in place.inner_text() for words in ("off by: predicted", "No verdict"))


def has(found: Any, count: int = 1) -> None:
    """Wait until a locator finds `count` elements."""
    eventually(lambda: found.count() == count, what=lambda: f"{count} of {found}: {found.count()}")


def click_soon(button: Any) -> None:
    """Click a button as soon as it is enabled."""
    button.evaluate(CLICK_SOON)


def can_be_cancelled(place: Any, name: str) -> None:
    """Start a run by the button `name`, cancel it at once, and wait until it can be started again.

    An earlier test may have left its run in the last moments before its buttons change: that end is awaited first.
    """
    run, cancel = (place.get_by_role("button", name=each) for each in (name, "Cancel"))
    eventually(cancel.is_disabled, what="the end of an earlier run")
    eventually(run.is_enabled, what=f"{name} enabled")
    click_soon(cancel)
    run.click()
    tells(place, "Cancelled.")
    eventually(run.is_enabled, what=f"{name} enabled again")


def launchers(server: int) -> list[psutil.Process]:
    """Return each mpiexec that a kernel of a server (a process id) has started."""
    found = []
    for kernel in kernels(server):
        with suppress(psutil.Error):  # it, or what it has started, may end meanwhile
            found += [each for each in kernel.children() if "mpiexec" in " ".join(each.cmdline())]
    return found


def slide_to(handle: Any, place: str) -> None:
    """Bring a slider to a place, as `aria-valuenow` says it."""
    while (now := float(handle.get_attribute("aria-valuenow"))) != float(place):
        handle.press("ArrowLeft" if now > float(place) else "ArrowRight")


# What a window of this width makes wrong: a page, charts or legends that are wider, charts without a drawing, words of
# charts that their drawing cuts off or that are small, numbers of an axis that touch.
WRONG = """width => [...document.querySelectorAll(".dlhpc-plot")].filter(plot => plot.offsetHeight).flatMap(plot => {
  const title = plot.closest(".dlhpc-figure-view")?.innerText.slice(0, 40), svg = plot.querySelector("svg");
  if (!svg) return [`${title}: not drawn`];
  const room = svg.getBoundingClientRect();
  const seen = text => room.width && text.getBoundingClientRect().width && text.textContent.trim()
    && getComputedStyle(text).opacity !== "0";
  const texts = [...svg.querySelectorAll("text")].filter(seen);
  const cut = texts.filter(text => {
    const own = text.getBoundingClientRect();
    return own.left < room.left - 2 || own.right > room.right + 2 || parseFloat(getComputedStyle(text).fontSize) < 11;
  }).map(text => `${title}: ${text.textContent}`);
  for (const axis of svg.querySelectorAll(".role-axis-label")) {
    const labels = [...axis.querySelectorAll("text")].filter(seen);
    labels.slice(1).forEach((label, i) => {
      const a = labels[i].getBoundingClientRect(), b = label.getBoundingClientRect();
      if (a.left < b.right + 3 && b.left < a.right + 3 && a.top < b.bottom - 3 && b.top < a.bottom - 3)
        cut.push(`${title}: ${labels[i].textContent} touches ${label.textContent}`);
    });
  }
  for (const item of plot.parentElement.querySelectorAll(".dlhpc-key li"))
    if (item.getBoundingClientRect().right > room.right + 2) cut.push(`${title}: legend ${item.textContent}`);
  return room.width > width ? [`${title}: ${room.width} px wide`, ...cut] : cut;
}).concat(document.documentElement.scrollWidth > width ? ["the page scrolls sideways"] : [])"""
WIDTHS = (1280, 1920, 800, 390)  # first the one that is there


def everyone_can_use(page: Any) -> None:
    """Assert that axe finds nothing serious in light and dark, and that no width scrolls or cuts words of charts."""
    for width in WIDTHS:
        is_as_wide_as_its_window(page, width)
    for scheme, look in (("dark", low_contrast), ("light", findings)):
        page.emulate_media(color_scheme=scheme)
        eventually(lambda look=look: look(page) == [], lambda look=look: str(look(page)))


def is_as_wide_as_its_window(page: Any, width: int) -> None:
    """Assert that a window of that width needs no scrolling sideways, and that no chart is wider or cuts its words."""
    page.set_viewport_size({"width": width, "height": 900})
    eventually(lambda: page.evaluate(WRONG, width) == [], lambda: page.evaluate(WRONG, width))


def kernels(server: int) -> list[psutil.Process]:
    """Return the kernels of a server (a process id)."""
    return kernels_of(psutil.Process(server))


def largest_kernel(server: int) -> int:
    """Return the bytes that the largest kernel of a server (a process id) shares with no other process."""
    used = [0]
    for kernel in kernels(server):
        with suppress(psutil.Error):
            used.append(kernel.memory_full_info().uss)
    return max(used)


class LessonPage:
    """A lesson in a browser; what is not here is the Playwright page's own."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def __getattr__(self, name: str) -> Any:
        return getattr(self.page, name)

    def drawn(self, index: int) -> str:
        """Return a sum of the drawings of an experiment."""
        return str(self.page.evaluate(DRAWN, index))

    def passing(self, words: str) -> Any:
        """Return a function that returns whether the page has shown the words since, even briefly."""
        self.page.evaluate(WATCH, words)
        return lambda: self.page.evaluate("words => window.seen[words]", words)

    def moves_meanwhile(
        self,
        index: int,
        label: str,
        button: Any,
        words: str,
        server: int,
        then: Callable[[], Any] = lambda: None,
    ) -> None:
        """Assert that a slider redraws its experiment while ranks work, as `words` show.

        server: its process id. What launches the ranks is stopped until then: on a busy machine the run would end
        before the redraw. then: done before it goes on.
        """
        button.click()
        with ExitStack() as afterwards:
            for each in eventually(lambda: launchers(server), "ranks"):
                each.suspend()
                afterwards.callback(each.resume)
            tells(self.page.locator("body"), words)
            before = self.drawn(index)
            self.slider(index, label).press("ArrowRight")
            eventually(lambda: self.drawn(index) != before, f"{label} moved")
            tells(self.page.locator("body"), words)
            then()

    def commit(self, number: int, guess: str | int) -> None:
        """Answer a question: a text to type, or the number of a choice, from 1."""
        card = self.page.locator(".dlhpc-question").nth(number)
        if isinstance(guess, int):
            card.locator("select").first.select_option(index=guess)
        else:
            card.locator("input").first.fill(guess)
        card.get_by_role("button", name="Check my guess").click()

    def experiment(self, index: int) -> Any:
        """Return an experiment of the page: controls and results."""
        return self.page.locator(".dlhpc-page").nth(index)

    def slider(self, index: int, label: str) -> Any:
        """Return the handle of a slider."""
        return self.experiment(index).get_by_role("slider", name=label, exact=True)

    def choose(self, index: int, label: str, choice: str) -> None:
        """Choose from a list."""
        self.listed(index, label).select_option(label=choice)

    def listed(self, index: int, label: str) -> Any:
        """Return a list of choices."""
        return self.experiment(index).locator(
            f".widget-dropdown:has(label:text-is('{label}')) select"
        )

    def slider_moves(self, index: int, label: str, key: str) -> None:
        """Assert that a slider has an accessible name, and that the key redraws its experiment."""
        handle = self.slider(index, label)
        eventually(lambda: handle.count() == 1, what=f"a name for {label}")
        before = self.drawn(index)
        handle.press(key)
        eventually(lambda: self.drawn(index) != before, f"a change by {label}")

    def choice_moves(self, index: int, label: str, choice: str, look: str = SHOWN) -> None:
        """Assert that a choice of a list changes what its experiment shows. look: SHOWN or DRAWN."""
        before = self.page.evaluate(look, index)
        self.choose(index, label, choice)
        eventually(lambda: self.page.evaluate(look, index) != before, f"a change by {label}")

    def controls_move_drawings(
        self,
        index: int,
        moves: Mapping[str, str],
        worded: Container[str] = (),
        at_rest: Callable[[], str] | None = None,
    ) -> None:
        """Assert that these controls of an experiment move a drawing, and bring all back to where they were.

        A slider and a list of each experiment are enough: tests/explore/test_lessons.py moves every control without a
        browser, and looks at what its drawings read.
        moves: the key of each slider, or the choice of each list, by label. worded: lists that may move words alone.
        at_rest: waits until a drawing that comes in parts is whole, and returns it; that, too, has to be another one.
        """
        back, seen = [], at_rest and at_rest()
        for label, move in moves.items():
            if move in KEYS:
                handle = self.slider(index, label)
                at = eventually(
                    lambda h=handle: h.get_attribute("aria-valuenow"), f"a name for {label}"
                )
                self.slider_moves(index, label, move)
                back.append(lambda h=handle, at=at: slide_to(h, at))
            else:
                select = self.listed(index, label)
                was = select.evaluate("select => select.selectedIndex")
                self.choice_moves(index, label, move, SHOWN if label in worded else DRAWN)
                back.append(lambda s=select, was=was: s.select_option(index=was))
            if at_rest:
                before, seen = seen, at_rest()
                assert seen != before, label
        for control in reversed(back):
            control()

    def a_guess_uncovers(
        self, guesses: Mapping[int, str | int], number: int, before: str, answer: str, compared: str
    ) -> None:
        """Assert that a page shows `before` and covered experiments, and that guess `number` uncovers one.

        answer: text below the question. compared: its row in the table of guesses at the end.
        """
        covered = self.page.locator(".dlhpc-stage.covered[inert]")
        has(covered, len(guesses))
        has(self.page.get_by_text(before))
        eventually(lambda: self.page.evaluate(GAPS) == 0, what="charts without gaps")
        window = self.page.viewport_size
        self.page.set_viewport_size({"width": 390, "height": 844})
        eventually(
            lambda: self.page.evaluate(OVER) == 0, what="controls that leave covered charts alone"
        )
        self.page.set_viewport_size(window)
        self.commit(number, guesses[number])
        has(covered, len(guesses) - 1)
        focus = "document.activeElement.className"
        found = "dlhpc-feedback"
        eventually(lambda: self.page.evaluate(focus) == found, what="a place for the keyboard")
        feedback = self.page.locator(".dlhpc-question").nth(number).locator(".dlhpc-feedback")
        eventually(lambda: answer in feedback.first.inner_text(), what=feedback.first.inner_text)
        table = self.page.locator("table").last
        eventually(lambda: compared in table.inner_text(), what=table.inner_text)

    def wall(self, index: int) -> str:
        """Return the limit that an experiment reports."""
        return str(self.experiment(index).locator(".dlhpc-walls").inner_text())
