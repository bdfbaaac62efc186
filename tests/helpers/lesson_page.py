"""A lesson's page as its tests handle it: guesses, experiments and their controls, what a visitor costs."""

from contextlib import suppress
from typing import Any

import psutil

MOST_MEMORY = 180e6  # bytes of a visitor's kernel
# All that an experiment shows: words, and the drawings themselves.
SHOWN = """index => { const page = document.querySelectorAll(".dlhpc-page")[index].querySelector(".dlhpc-results");
  return page.innerText + [...page.querySelectorAll("svg")].map(svg => svg.outerHTML).join(""); }"""
DRAWN = """index => [...document.querySelectorAll(".dlhpc-page")[index].querySelectorAll(".dlhpc-results svg")]
  .map(svg => svg.outerHTML).join("")"""


def commit(page: Any, number: int, guess: str | int) -> None:
    """Answer a question: a text to type, or the number of a choice, from 1."""
    card = page.locator(".dlhpc-question").nth(number)
    if isinstance(guess, int):
        card.locator("select").first.select_option(index=guess)
    else:
        card.locator("input").first.fill(guess)
        card.locator("input").first.press("Tab")
    card.get_by_role("button", name="Commit").click()


def experiment(page: Any, index: int) -> Any:
    """Return an experiment of the page: controls and results."""
    return page.locator(".dlhpc-page").nth(index)


def slider(page: Any, index: int, label: str) -> Any:
    """Return the handle of a slider."""
    return experiment(page, index).get_by_role("slider", name=label, exact=True)


def choose(page: Any, index: int, label: str, choice: str) -> None:
    """Choose from a list."""
    box = experiment(page, index)
    box.locator(f".widget-dropdown:has(label:text-is('{label}')) select").select_option(
        label=choice
    )


def wall(page: Any, index: int) -> str:
    """Return which limit an experiment says is hit."""
    return str(experiment(page, index).locator(".dlhpc-walls").inner_text())


def largest_kernel(server: int) -> int:
    """Return the resident bytes of the largest kernel of a server (a process id)."""
    used = [0]
    for child in psutil.Process(server).children():
        with suppress(psutil.Error):
            if any("ipykernel" in word for word in child.cmdline()):
                used.append(child.memory_info().rss)
    return max(used)
