"""Page object of the explorer in a browser: presets, controls, sections, and all that a choice decides."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from patience import DIGEST, eventually

DRAWN = ".dlhpc-plot[data-serial] svg"
GANTT = ".dlhpc-plot[aria-label*='rank by rank']"
# What a choice leads to: headline numbers, parts of the step and of memory. What is derived from the choice itself
# (remarks, trust, differences from A, the ghost of A) does not count.
NUMBERS = """() => [...document.querySelectorAll(".dl-nums > div:not(.trust) dd")]
  .map(each => each.firstChild.textContent)
  .concat([...document.querySelectorAll(".dl-key")].map(each => each.innerText)).join()"""
# A sum of headline, numbers and charts. The controls themselves do not count.
RESULTS = f"""() => ({DIGEST})([...document.querySelectorAll(".dl-say, .dl-top, .dl-below")]
  .map(part => part.innerText + [...part.querySelectorAll("svg")].map(svg => svg.outerHTML)).join())"""
# Of that, the controls and presets.
SHOWN = f"""() => ({DIGEST})(document.querySelector(".dl-explorer").innerText
  + [...document.querySelectorAll(".dl-main svg")].map(svg => svg.outerHTML).join())"""


def opened(page: Any) -> Any:
    """Return the page once its charts are drawn."""
    page.wait_for_selector(DRAWN)
    return page


def chip(page: Any, name: str) -> None:
    """Choose a preset as it is, and wait until it is shown."""
    button = page.locator(".chip", has_text=name)
    button.click()
    eventually(lambda: button.get_attribute("aria-pressed") == "true", what=name)
    eventually(lambda: page.locator(".row.changed").count() == 0, what=f"{name} as it is")
    settled(page)


def another(page: Any, words: str) -> None:
    """Choose a run that is on no chip, by words of its title, and wait until it is shown."""
    runs = page.get_by_label("More published runs")
    runs.select_option(runs.locator("option", has_text=words).get_attribute("value"))
    eventually(lambda: words in page.locator(".dl-about summary").inner_text(), what=words)
    settled(page)


def settled(page: Any) -> None:
    """Wait until the page has nothing more to show: controls that are being drawn anew take no click."""
    looks = [""]

    def same() -> bool:
        looks.append(page.evaluate(SHOWN))
        return bool(looks[-1] == looks[-2])

    eventually(same, what="a page at rest")


def control(page: Any, field: str) -> Any:
    """Return the line of a control, its group unfolded."""
    line = page.locator(f'[data-field="{field}"]')
    group = page.locator(f'details.group:has([data-field="{field}"])')
    if group.get_attribute("open") is None:
        group.locator("summary").first.click()
    return line


def applying(page: Any) -> set[str]:
    """Return the fields of the controls that apply."""
    rows = """() => [...document.querySelectorAll(".row[data-field]:not([hidden])")].map(row => row.dataset.field)"""
    return set(page.evaluate(rows))


def changes(page: Any, act: Callable[[], Any], what: str) -> None:
    """Act, and wait until the page shows other results."""
    before = page.evaluate(RESULTS)
    act()
    eventually(lambda: page.evaluate(RESULTS) != before, what=f"a change by {what}")


def part(page: Any, field: str, name: str) -> Any:
    """Return one of the buttons that a control is made of."""
    return control(page, field).get_by_role("radio", name=name, exact=True)


def others(page: Any, field: str) -> Iterator[Callable[[], Any]]:
    """Yield what sets a control to another legal value, whatever kind it is; of a slider the far ends as well."""
    line = control(page, field)
    slider, select = line.locator("input[type=range]"), line.locator("select")
    radios = line.locator("input[type=radio]:not(:disabled)")
    if slider.count():
        most = slider.get_attribute("max")
        for key, end in (("ArrowLeft", "0"), ("ArrowRight", most), ("Home", "0"), ("End", most)):
            if slider.input_value() != end:
                yield lambda key=key: slider.press(key)
    elif select.count():
        now = select.evaluate("select => select.selectedIndex")
        for index in range(select.locator("option").count()):
            if index != now:
                yield lambda index=index: select.select_option(index=index)
    elif radios.count():
        for radio in radios.all():
            if not radio.is_checked():
                yield lambda radio=radio: radio.check(force=True)
    else:
        yield line.locator("input[type=checkbox]").click


def move(page: Any, field: str) -> None:
    """Move a control to another legal value."""
    next(others(page, field))()


def moves_numbers(page: Any, field: str) -> bool:
    """Return whether some value of a control leads to other numbers than its first one."""
    first = page.evaluate(NUMBERS)
    for act in others(page, field):
        address = page.evaluate("location.hash")
        act()
        eventually(lambda at=address: page.evaluate("location.hash") != at, what=field)
        settled(page)
        if page.evaluate(NUMBERS) != first:
            return True
    return False


def moves(page: Any, field: str, lets: str | None = None) -> bool | None:
    """Return whether a control moves a number, or lets the control `lets` apply; None where it cannot be moved."""
    applied, line = applying(page), control(page, field)
    if field not in applied or line.locator("input[type=range]:disabled").count():
        return None
    return moves_numbers(page, field) or lets in applied ^ applying(page)


def use(page: Any, text: str | Path) -> None:
    """Choose a file with this content, or one of this machine, which the browser reads itself."""
    file = {"name": "mine.toml", "mimeType": "text/plain", "buffer": str(text).encode()}
    chosen = text if isinstance(text, Path) else file
    page.locator(".dlhpc-file input[type=file]").set_input_files(chosen)


def section(page: Any, name: str) -> None:
    """Open a section by keyboard."""
    button = page.get_by_role("button", name=name, exact=True)
    if "mod-active" not in (button.get_attribute("class") or ""):
        button.focus()
        page.keyboard.press("Enter")
