"""The what-if explorer as a visitor uses it: every control moves something, and mistakes are told."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from lesson_page import has, tells
from patience import PATIENCE

from lib_dlhpc.explore.server.serve import served
from lib_dlhpc.prediction.replays import replay, replays
from lib_dlhpc.spec.experiment import loads
from lib_dlhpc.spec.units import format_quantity

pytestmark = pytest.mark.browser

DRAWN = "document.querySelectorAll('.dlhpc-plot[data-serial] svg').length === 6"
# All that the results show: words, and the drawings themselves.
SHOWN = """() => document.querySelector(".dlhpc-results").innerText
  + [...document.querySelectorAll(".dlhpc-plot svg")].map(svg => svg.outerHTML).join("")"""
DROPDOWNS = {
    "Run": "You 2018: ImageNet in 20 minutes, 2,048 KNL",
    "Model": "VGG-16",
    "Machine": "ABCI",
    "Precision": "fp16",
    "Optimizer": "adam",
    "Allreduce": "binomial reduce + broadcast",
    "Storage": "in memory (no input)",
    "Data set": "CosmoFlow (MLPerf)",
}
MOST_MEMORY = 180e6  # bytes of a visitor's kernel, thirty of which must fit a classroom server


@pytest.fixture(scope="module")
def explorer(repository: Path, chromium: Any) -> Iterator[tuple[str, int]]:
    with served(repository / "modules" / "00_what_if_explorer.ipynb", preheat=1) as server:
        yield server


@pytest.fixture(scope="module")
def opened_page(explorer: tuple[str, int], open_lasting_page: Callable[..., Any]) -> Any:
    page = open_lasting_page(explorer[0])
    page.wait_for_function(DRAWN)
    return page


@pytest.fixture
def page(opened_page: Any, eventually: Any) -> Any:
    """One page for all tests, as it was at first: opening one takes seconds. Another run sets every control."""
    page = opened_page
    page.set_viewport_size({"width": 1280, "height": 900})
    if page.locator(".dlhpc-play-controls").is_visible():
        dropdown(page, "Fidelity").select_option(index=0)
        slider(page, "Steps").press("Home")
        page.get_by_role("button", name="Play this step").click()
    for name in ("you-2018", "goyal-2017"):
        run = replay(name)
        dropdown(page, "Run").select_option(label=run.title)
        time = f"published {format_quantity(run.published_time, 's')}"
        eventually(
            lambda time=time: time in page.locator(".dlhpc-headline").inner_text(), what=time
        )
    page.wait_for_function(DRAWN)
    return page


@pytest.fixture
def changes(eventually: Callable[..., Any]) -> Callable[[Any, Callable[[], Any]], str]:
    """A function: changes(page, act) acts, waits until the results show something else, returns it."""

    def changes(page: Any, act: Callable[[], Any]) -> str:
        before = page.evaluate(SHOWN)
        act()
        eventually(lambda: page.evaluate(SHOWN) != before)
        return str(page.evaluate(SHOWN))

    return changes


def dropdown(page: Any, label: str) -> Any:
    return page.locator(f".widget-dropdown:has(label:text-is('{label}')) select")


def options(page: Any, label: str) -> list[str]:
    # The widget writes its labels with spaces that do not break.
    texts = dropdown(page, label).locator("option").all_text_contents()
    return [text.replace("\xa0", " ") for text in texts]


def chosen(page: Any, label: str) -> str:
    text = dropdown(page, label).locator("option:checked").text_content()
    return str(text).replace("\xa0", " ")


def slider(page: Any, label: str) -> Any:
    return page.get_by_role("slider", name=label, exact=True)


@pytest.fixture
def upload(page: Any, tmp_path: Path) -> Callable[[bytes], None]:
    """A function: upload(content) chooses a file with that content."""

    def upload(content: bytes) -> None:
        file = (
            tmp_path / "mine.toml"
        )  # from a disk as visitors do; handed over here it takes ten times as long
        file.write_bytes(content)
        page.locator(".dlhpc-file input[type=file]").set_input_files(file)

    return upload


def kernels(server: int) -> list[psutil.Process]:
    found = []
    for child in psutil.Process(server).children():
        with suppress(psutil.Error):
            if any("ipykernel" in word for word in child.cmdline()):
                found.append(child)
    return found


def test_the_first_run_is_the_one_that_the_text_speaks_of(
    opened_page: Any, eventually: Any
) -> None:
    eventually(lambda: chosen(opened_page, "Run") == replay("goyal-2017").title)


@pytest.mark.parametrize("label", DROPDOWNS)
def test_every_dropdown_moves_something(page: Any, changes: Any, label: str) -> None:
    offered = options(page, label)
    wanted = next(i for i, text in enumerate(offered) if text.startswith(DROPDOWNS[label]))
    changes(page, lambda: dropdown(page, label).select_option(index=wanted))


@pytest.mark.parametrize("label", ["Nodes", "Batch a device", "Bucket"])
def test_every_slider_moves_something_by_keyboard(page: Any, eventually: Any, label: str) -> None:
    seen = [page.evaluate(SHOWN)]
    for _ in range(2):
        slider(page, label).press("ArrowLeft")
        eventually(lambda: page.evaluate(SHOWN) not in seen, what=label)
        seen.append(page.evaluate(SHOWN))


def test_overlap_and_epochs_move_something(page: Any, changes: Any) -> None:
    changes(page, lambda: page.get_by_role("checkbox", name="Overlap with backward").uncheck())
    epochs = page.locator("input[type=number]")
    epochs.fill("45")
    changes(page, lambda: epochs.press("Enter"))


def test_every_historical_run_shows_its_publication_whatever_was_shown_before(
    page: Any, eventually: Any
) -> None:
    """All ordered pairs: a slider must not report as a move that its options changed."""
    walk = [b for a in replays() for b in replays() if b is not a for b in (a, b)]
    headline = page.locator(".dlhpc-headline")
    for run in walk:
        dropdown(page, "Run").select_option(label=run.title)
        eventually(
            lambda run=run: run.description[:40] in page.locator(".dlhpc-controls").inner_text()
        )
        time = format_quantity(run.published_time, "s")
        eventually(lambda time=time: f"published {time}" in headline.inner_text(), what=run.name)
    eventually(lambda: chosen(page, "Run") == walk[-1].title)
    nodes = page.locator(".widget-inline-hbox:has(label:text-is('Nodes')) .widget-readout")
    eventually(lambda: nodes.inner_text() == f"{walk[-1].experiment.strategy.nodes:,}")
    slider(page, "Nodes").press("ArrowLeft")
    eventually(lambda: "published" not in headline.inner_text())


def test_a_wall_says_by_how_much_and_the_charts_stay(page: Any, eventually: Any) -> None:
    handle = slider(page, "Batch a device")
    handle.press("End")
    walls = page.locator(".dlhpc-walls")
    eventually(lambda: "too much; the largest batch a device that fits is" in walls.inner_text())
    page.wait_for_function(DRAWN)
    charts = page.locator(".dlhpc-charts")
    eventually(lambda: "does not fit" in charts.inner_text().lower())


def test_every_number_opens_to_formula_inputs_and_source(page: Any, eventually: Any) -> None:
    opener = page.get_by_role("button", name="Where every number comes from")
    opener.focus()
    page.keyboard.press("Enter")
    folds = page.locator(".dlhpc-why")
    eventually(lambda: folds.count() == 9)
    folds.first.locator("summary").click()
    tells(folds.first, "Formula", "P100", "Assumes")


def opened(page: Any) -> Any:
    """Open the section "Play this step" by keyboard; return it when its chart is there."""
    page.get_by_role("button", name="Play this step").focus()
    page.keyboard.press("Enter")
    page.wait_for_function(DRAWN.replace("=== 6", "=== 7"))
    return page.locator(".dlhpc-results")


def test_a_step_is_played_beside_its_prediction_and_why_they_differ_is_told(page: Any) -> None:
    words = ("predicted", "simulated, rounds", "one step", "waiting for the slowest")
    why = ("Why they differ", "draws the jitter", "computes longest", "hidden behind")
    tells(opened(page), *words, *why)
    steps = "[aria-label*='rank by rank'][aria-label*='The others wait for it']"
    has(page.locator(f".dlhpc-plot{steps}"))


def test_each_control_of_playing_moves_something(page: Any, eventually: Any) -> None:
    results = opened(page)
    pictures = page.locator(".dlhpc-plot[aria-label*='rank by rank'] svg")
    dropdown(page, "Fidelity").select_option(index=1)
    eventually(lambda: "simulated, events" in results.inner_text())
    dropdown(page, "Fidelity").select_option(index=0)
    eventually(lambda: "simulated, events" not in results.inner_text())
    before = pictures.inner_html()
    seed = page.locator(".dlhpc-play-controls input[type=number]")
    seed.fill("7")
    seed.press("Enter")
    eventually(lambda: "seed 7" in results.inner_text())
    eventually(lambda: pictures.inner_html() != before)
    slider(page, "Steps").press("ArrowRight")
    eventually(lambda: "2 steps on 256 ranks" in results.inner_text())


def test_what_was_played_follows_the_page_or_is_called_of_other_settings(
    page: Any, eventually: Any
) -> None:
    results, handle = opened(page), slider(page, "Nodes")
    handle.press("ArrowLeft")
    eventually(lambda: "One step on 128 ranks" in results.inner_text())
    dropdown(page, "Fidelity").select_option(index=1)
    eventually(lambda: "simulated, events" in results.inner_text())
    handle.press("ArrowRight")
    eventually(lambda: "Of other settings" in results.inner_text())
    has(page.locator(".dlhpc-stale"))
    page.get_by_role("button", name="Play again").click()
    eventually(lambda: "One step on 256 ranks" in results.inner_text())
    eventually(lambda: page.locator(".dlhpc-stale").count() == 0)


def test_too_many_messages_are_told_and_not_played(page: Any, eventually: Any) -> None:
    results = opened(page)
    dropdown(page, "Allreduce").select_option(label="ring")
    dropdown(page, "Fidelity").select_option(index=1)
    eventually(lambda: "messages, each followed on its own" in results.inner_text())
    tells(results, "Choose fewer nodes")
    dropdown(page, "Fidelity").select_option(index=0)
    eventually(lambda: "Not played" not in results.inner_text())


def test_a_bar_says_what_it_is(page: Any, eventually: Any) -> None:
    opened(page)
    bar = page.locator(
        ".dlhpc-plot[aria-label*='rank by rank'] svg path[aria-label], "
        ".dlhpc-plot[aria-label*='rank by rank'] svg .mark-rect path"
    ).nth(3)
    bar.scroll_into_view_if_needed()
    bar.hover()
    bubble = page.locator(".dlhpc-bubble:visible")
    has(bubble)
    tells(bubble, "rank ", " from ")


def test_a_slider_has_a_name_and_says_its_value(page: Any, eventually: Any) -> None:
    for label in ("Nodes", "Batch a device", "Bucket"):
        handle = slider(page, label)
        handle.press("ArrowLeft")
        reading = handle.locator("xpath=ancestor::*[contains(@class, 'widget-inline-hbox')][1]")
        text = reading.locator(".widget-readout")
        eventually(lambda h=handle, t=text: h.get_attribute("aria-valuetext") == t.inner_text())


def test_a_saved_experiment_is_what_is_shown_and_loads_back(
    page: Any, upload: Any, changes: Any, eventually: Any
) -> None:
    headline, editor = page.locator(".dlhpc-headline"), page.locator(".dlhpc-file textarea")

    def nodes() -> int:
        return int(loads(editor.input_value()).strategy.nodes)

    changes(page, lambda: slider(page, "Nodes").press("Home"))
    # The text is the last that follows a control.
    eventually(lambda: nodes() == 1, what="one node in the text")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as TOML").click()
    text = Path(download.value.path()).read_text(encoding="utf-8")
    assert loads(text).strategy.nodes == 1
    shown = headline.inner_text()
    changes(page, lambda: slider(page, "Nodes").press("End"))
    eventually(lambda: nodes() > 1, what="more nodes in the text")
    assert loads(text).strategy.nodes == 1
    upload(text.encode())
    eventually(lambda: nodes() == 1, what="one node in the text")
    eventually(lambda: headline.inner_text() == shown)
    eventually(lambda: chosen(page, "Run") == "your own")


HOSTILE = {  # what is told of each is told of no other, so that nobody takes one's words for the next one's
    "broken": (b"[model\nname = ", "at line 1, column 7)"),
    "binary": (bytes(range(256)) * 8, "at line 1, column 1)"),
    "empty": (b"", "[model] is missing"),
    "a list": (b'model = ["resnet50"]', "[dataset] is missing"),
    "unknown key": (b'[modle]\nname = "resnet50"', "Did you mean 'model'"),
    "code": (
        b"[model]\nname = \"__import__('os').system('id')\"\n[dataset]\nname=\"imagenet\"\n"
        b'[machine]\nname="abci"',
        "__import__",
    ),
    "markup": (
        b'[model]\nname = "<img src=x onerror=alert(1)>"\n[dataset]\nname="imagenet"\n'
        b'[machine]\nname="abci"',
        "<img src=x",
    ),
    "outside": (
        b'[model]\nname = "../devices/k80"\n[dataset]\nname="imagenet"\n[machine]\nname="abci"',
        "'../devices/k80': not in the catalog",
    ),
    "deep": (b"a = " + b"[" * 100_000, "nested too deeply"),
    "endless": (
        b'[model]\nfamily="resnet"\nblocks=[1000000000]\n[dataset]\nname="imagenet"\n'
        b'[machine]\nname="abci"',
        "at most 100,000 layers",
    ),
    "huge": (b"x" * 30_000_000, "the most is 1,000,000"),
}


def test_no_file_harms_the_page(page: Any, upload: Any, eventually: Any) -> None:
    problem, headline = page.locator(".dlhpc-file .problem"), page.locator(".dlhpc-headline")
    alarms: list[str] = []
    page.on("dialog", lambda dialog: (alarms.append(dialog.message), dialog.dismiss()))
    before = headline.inner_text()
    for name, (content, words) in HOSTILE.items():
        upload(content)
        eventually(lambda words=words: words in problem.inner_text(), what=name)
        eventually(lambda: headline.inner_text() == before, what=f"the headline after {name}")
    assert not alarms


@pytest.mark.parametrize("name", ["broken", "huge"])
def test_what_was_wrong_with_a_file_goes_with_the_next_experiment(
    page: Any, upload: Any, changes: Any, eventually: Any, name: str
) -> None:
    """Whoever refuses it: the kernel, or the browser, which sends no file that is too large."""
    problem, (content, words) = page.locator(".dlhpc-file .problem"), HOSTILE[name]
    upload(content)
    eventually(lambda: words in problem.inner_text(), what=name)
    changes(page, lambda: slider(page, "Nodes").press("Home"))
    eventually(lambda: problem.inner_text() == "", what="the end of the problem")
    upload(content)
    eventually(lambda: words in problem.inner_text(), what=f"{name}, a second time")


def test_a_mistake_typed_into_the_text_is_told(page: Any, eventually: Any) -> None:
    page.get_by_text("The experiment as text").click()
    editor = page.get_by_role("textbox", name="Experiment as TOML")
    eventually(lambda: "nodes = 32" in editor.input_value())
    editor.fill(editor.input_value().replace("nodes = 32", "nodes = 45"))
    page.get_by_role("button", name="Use this text").click()
    problem = page.locator(".dlhpc-file .problem")
    eventually(lambda: "bigbasin has 44" in problem.inner_text())


def test_a_visitor_sees_no_source_and_costs_little_memory(
    page: Any, explorer: tuple[str, int], changes: Any, eventually: Any
) -> None:
    for _ in range(3):
        changes(page, lambda: slider(page, "Nodes").press("ArrowLeft"))
    eventually(lambda: "from lib_dlhpc" not in page.content())
    sizes = [kernel.memory_info().rss for kernel in kernels(explorer[1])]
    assert sizes and max(sizes) < MOST_MEMORY


def test_a_kernel_dies_with_its_page(explorer: Any, chromium: Any, eventually: Any) -> None:
    page = chromium.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    page.goto(explorer[0])
    page.wait_for_function(DRAWN)
    config = json.loads(page.locator("#jupyter-config-data").text_content())

    def lives() -> bool:
        # Other pages' kernels come and go meanwhile; a kernel's id stands in its command line.
        lines = (" ".join(kernel.cmdline()) for kernel in kernels(explorer[1]))
        return any(config["kernelId"] in line for line in lines)

    eventually(lives, what="the kernel of the page")
    page.close(run_before_unload=True)
    eventually(lambda: not lives(), what="the end of the kernel")


@pytest.mark.parametrize("width", [1280, 800])
def test_nothing_is_cut_off(page: Any, eventually: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    opened(page)
    dropdown(page, "Fidelity").select_option(index=1)
    page.get_by_text("simulated, events").wait_for()
    for element in ("document.documentElement", "document.querySelector('.dlhpc-played')"):
        over = f"{element}.scrollWidth - {element}.clientWidth"
        eventually(lambda over=over: page.evaluate(over) <= 0, what=element)
