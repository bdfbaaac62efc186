"""The explorer as a planner uses it: every control moves something, A stays, the address brings it all back."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from explorer_page import another, applying, changes, chip, control, move, moves, opened, part, use
from lesson_page import MOST_MEMORY, everyone_can_use, has, kernels, largest_kernel, tells
from patience import PATIENCE

from lib_dlhpc.explore.explorer.controls import CONTROLS
from lib_dlhpc.explore.explorer.presets import CHIPS
from lib_dlhpc.explore.server.serve import served
from lib_dlhpc.spec.experiment import loads

pytestmark = pytest.mark.browser

REST = 1100  # ms; moves that follow each other more quickly are one step of the history
GPT3, GOYAL = "GPT-3 on 1,024 A100", "Goyal 2017"
# Storage that keeps up with the input on every tier moves no number; with it the interval of checkpoints applies.
LETS = {"storage.tier": "run.checkpoint_interval"}
# The files of the chart: plain numbers with their units, a picture with title, key and words that can be read.
CHART = {
    "CSV": ("row,part,time (s),share of the step (%)\n", "yours,forward,0."),
    "SVG": ("Where the time of one step goes", ">forward ", "lib_dlhpc", 'paint-order="stroke"'),
}
HOSTILE = {  # what is reported of each is reported of no other, so that nobody takes one's words for the next one's
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


@pytest.fixture(scope="module")
def explorer(repository: Path, chromium: Any, tmp_path_factory: Any) -> Iterator[tuple[str, int]]:
    """The explorer of somebody who has not calibrated: its address, and the server's process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        with served(repository / "modules" / "00_what_if_explorer.ipynb", preheat=1) as server:
            yield server


@pytest.fixture(scope="module")
def page(explorer: tuple[str, int], open_lasting_page: Any) -> Any:
    """One page for all tests, in their order."""
    return opened(open_lasting_page(explorer[0]))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: Any) -> dict[str, Path]:
    """The files of HOSTILE by name; one of 30 MB takes seconds to hand to a browser in any other way."""
    folder = tmp_path_factory.mktemp("hostile")
    for name, (content, _) in HOSTILE.items():
        (folder / f"{name}.toml").write_bytes(content)
    return {name: folder / f"{name}.toml" for name in HOSTILE}


def test_the_first_window_has_the_question_on_a_line_and_both_charts(page, eventually):
    heading = page.get_by_role("heading", level=1)
    tells(heading, "what would this run cost, and where would its time go?")
    eventually(lambda: heading.bounding_box()["height"] < 40)
    memory = page.locator(".dl-below .dlhpc-plot").first
    bottom = "plot => plot.getBoundingClientRect().bottom"
    eventually(lambda: memory.evaluate(bottom) <= 900, lambda: str(memory.evaluate(bottom)))


def test_a_first_move_shifts_no_chart(page, eventually):
    chip(page, GOYAL)
    plots = page.locator(".dlhpc-plot")
    tops = "all => all.slice(0, 2).map(plot => plot.getBoundingClientRect().top + scrollY)"
    before = plots.evaluate_all(tops)
    control(page, "strategy.nodes").locator("input[type=range]").press("ArrowLeft")
    tells(page.locator(".dl-nums"), "+97.7%")
    eventually(lambda: plots.evaluate_all(tops) == before)


@pytest.mark.parametrize("name", CHIPS.values())
def test_each_preset_is_shown(page, name):
    chip(page, name)
    tells(page.locator(".dl-nums"), "Time to train", "MFU")
    has(page.get_by_role("img", name="Where the time of one step goes"))


def test_every_control_moves_a_number_of_a_preset_that_it_applies_to(page):
    has(page.locator("[data-field]"), len(CONTROLS))
    seen: set[str] = set()
    for preset in (GOYAL, GPT3, "CosmoFlow"):
        chip(page, preset)
        for field in sorted(applying(page) - seen):
            # From where the control before has left the page, or else from the preset as it is.
            if not moves(page, field, LETS.get(field)):
                chip(page, preset)
                moved = moves(page, field, LETS.get(field))
                assert moved is not False, f"{field} of {preset}"
                if moved is None:
                    continue
            seen.add(field)


def test_how_tokens_travel_to_experts_moves_numbers_and_comes_back(page, eventually):
    fields = [f"strategy.{name}" for name in ("expert_exchange", "expert_wire", "experts")]
    chip(page, GPT3)
    assert not applying(page) & {*fields}
    another(page, "DeepSeek-V3")
    assert applying(page) >= {*fields}
    eventually(lambda: part(page, "strategy.recompute", "light").is_checked())
    for field in fields[:2]:
        assert moves(page, field), field
    words = ("strategy.expert_exchange=direct", "strategy.expert_wire=same")
    eventually(lambda: all(each in page.evaluate("location.hash") for each in words))
    page.reload()
    opened(page)
    eventually(lambda: part(page, "strategy.expert_exchange", "direct").is_checked())
    eventually(lambda: part(page, "strategy.expert_wire", "as computed").is_checked())
    eventually(lambda: all(each in page.evaluate("location.hash") for each in words))
    assert moves(page, fields[2])


def test_a_control_says_its_value_and_goes_back(page, eventually):
    chip(page, GOYAL)
    line = control(page, "strategy.nodes")
    handle, output = line.locator("input[type=range]"), line.locator("output")
    handle.press("ArrowLeft")
    eventually(lambda: handle.get_attribute("aria-valuetext") == output.inner_text() == "16")
    line.get_by_role("button", name="back to 32").click()
    eventually(lambda: output.inner_text() == "32")


def test_undo_and_redo(page, eventually):
    number = page.locator(".dl-nums dd").first
    chip(page, GOYAL)
    eventually(lambda: "59.8" in number.inner_text())
    changes(page, lambda: move(page, "strategy.nodes"), "nodes")
    page.get_by_role("button", name="Undo").click()
    eventually(lambda: "59.8" in number.inner_text())
    page.get_by_role("button", name="Redo").click()
    eventually(lambda: "59.8" not in number.inner_text())


def test_why_gpt3_does_not_fit_and_what_makes_it_fit(page):
    chip(page, GPT3)
    for field in ("strategy.tensor", "strategy.pipeline"):
        changes(page, lambda f=field: part(page, f, "1").check(force=True), field)
    # With one of the two, ZeRO 2 is enough: the answer to both is awaited.
    tells(page.locator(".dl-say"), "Does not fit", "optimizer state", "Try: ZeRO 3")
    changes(page, page.get_by_role("button", name="Apply").click, "Apply")
    tells(page.locator(".dl-main"), "✓ fits")


def test_a_pinned_baseline_stays_and_differences_are_named(page):
    chip(page, GPT3)
    page.get_by_role("button", name="Pin as baseline A").click()
    selective = part(page, "strategy.recompute", "selective")
    changes(page, lambda: selective.check(force=True), "recompute")
    tells(page.locator(".dl-said"), "recompute full → selective", "step takes", "less")


def test_reload_and_back_bring_the_same_picture(page, eventually):
    address, number = "location.hash", page.locator(".dl-nums dd").first
    eventually(lambda: "strategy.recompute" in page.evaluate(address))
    now = number.inner_text()
    page.reload()
    opened(page)
    eventually(lambda: number.inner_text() == now, what="the picture after a reload")
    rested = page.evaluate("performance.now()") + REST
    eventually(lambda: page.evaluate("performance.now()") > rested)
    move(page, "strategy.nodes")
    eventually(lambda: "strategy.nodes" in page.evaluate(address))
    page.go_back()
    eventually(lambda: "strategy.nodes" not in page.evaluate(address))
    eventually(lambda: number.inner_text() == now, what="the picture after going back")


def test_an_address_that_is_wrong_names_what_was_ignored(page):
    page.evaluate("location.hash = '#v1&preset=goyal-2017&strategy.nodes=many'")
    tells(page.locator(".dl-main"), "Ignored", "many")


def test_a_limit_says_by_how_much_and_the_charts_stay(page, eventually):
    chip(page, GOYAL)
    handle = control(page, "strategy.batch").locator("input")
    # Advice that arrives late draws the controls anew, which may swallow a key.
    eventually(lambda: handle.press("End") or handle.input_value() == handle.get_attribute("max"))
    tells(page.locator(".dl-main"), "too much; the largest batch per device that fits is", "✗")
    has(page.get_by_role("img", name="Where the time of one step goes"))


def test_every_number_opens_to_formula_inputs_and_source(page, eventually):
    chip(page, GOYAL)
    opener = page.get_by_role("button", name="Every number")
    opener.focus()
    page.keyboard.press("Enter")
    folds = page.locator(".dlhpc-why")
    eventually(lambda: folds.count() == 10)
    folds.first.locator("summary").click()
    tells(folds.first, "Formula", "P100", "Assumes")
    opener.click()


def test_a_saved_experiment_is_what_is_shown_and_loads_back(page, eventually):
    number, editor = page.locator(".dl-nums dd").first, page.locator(".dlhpc-file textarea")

    def nodes() -> int:
        return int(loads(editor.input_value()).strategy.nodes)

    handle = control(page, "strategy.nodes").locator("input")
    changes(page, lambda: handle.press("Home"), "nodes")
    eventually(lambda: nodes() == 1, what="one node in the text")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as TOML").click()
    text = Path(download.value.path()).read_text(encoding="utf-8")
    page.locator(".dl-top summary").click()
    for kind, words in CHART.items():
        with page.expect_download() as saved:
            page.locator(".dl-top").get_by_role("button", name=f"Save as {kind}").click()
        chart = Path(saved.value.path()).read_text(encoding="utf-8")
        assert all(each in chart for each in words), chart[:300]
    shown = number.inner_text().split()[:2]  # without the difference from A
    changes(page, lambda: handle.press("End"), "nodes")
    eventually(lambda: nodes() > 1, what="more nodes in the text")
    use(page, text)
    eventually(lambda: nodes() == 1, what="one node in the text")
    eventually(lambda: number.inner_text().split()[:2] == shown)


def test_no_file_harms_the_page(page, eventually, hostile):
    problem, headline = page.locator(".dlhpc-file .problem"), page.locator(".dl-nums")
    alarms: list[str] = []
    page.on("dialog", lambda dialog: (alarms.append(dialog.message), dialog.dismiss()))
    before = headline.inner_text()
    for name, (_, words) in HOSTILE.items():
        use(page, hostile[name])
        eventually(lambda words=words: words in problem.inner_text(), what=name)
        eventually(lambda: headline.inner_text() == before, what=f"the headline after {name}")
    assert not alarms


@pytest.mark.parametrize("name", ["broken", "huge"])
def test_what_was_wrong_with_a_file_goes_with_the_next_experiment(page, eventually, hostile, name):
    """The kernel refuses a broken file; the browser refuses one that is too large, and does not send it."""
    problem, (_, words) = page.locator(".dlhpc-file .problem"), HOSTILE[name]
    use(page, hostile[name])
    eventually(lambda: words in problem.inner_text(), what=name)
    changes(page, lambda: move(page, "strategy.nodes"), "nodes")
    eventually(lambda: problem.inner_text() == "", what="the end of the problem")
    use(page, hostile[name])
    eventually(lambda: words in problem.inner_text(), what=f"{name}, a second time")


def test_a_mistake_typed_into_the_text_is_reported(page, eventually):
    chip(page, GOYAL)
    page.get_by_text("The experiment as text").click()
    editor = page.get_by_role("textbox", name="Experiment as TOML")
    eventually(lambda: "nodes = 32" in editor.input_value())
    editor.fill(editor.input_value().replace("nodes = 32", "nodes = 45"))
    page.get_by_role("button", name="Use this text").click()
    problem = page.locator(".dlhpc-file .problem")
    eventually(lambda: "bigbasin has 44" in problem.inner_text())


def test_a_visitor_sees_no_source_and_costs_little_memory(page, explorer, eventually):
    eventually(lambda: "from lib_dlhpc" not in page.content())
    assert 0 < largest_kernel(explorer[1]) < MOST_MEMORY


def test_a_kernel_dies_with_its_page(explorer, chromium, eventually):
    context = chromium.new_context()
    context.set_default_timeout(PATIENCE * 1000)
    opener = context.new_page()
    with opener.expect_popup() as tab:
        opener.evaluate("address => { window.tab = window.open(address) }", explorer[0])
    page = opened(tab.value)
    config = json.loads(page.locator("#jupyter-config-data").text_content())

    def alive() -> bool:
        # Other pages' kernels come and go meanwhile; a kernel's id stands in the names of its sockets.
        sockets: list[str] = []
        for kernel in kernels(explorer[1]):
            with suppress(psutil.Error):
                sockets += [str(socket.laddr) for socket in kernel.net_connections("unix")]
        return any(config["kernelId"] in socket for socket in sockets)

    eventually(alive, what="the kernel of the page")
    # By the page that has opened it: of one that Playwright closes, chromium-headless-shell drops the last words.
    opener.evaluate("window.tab.close()")
    eventually(lambda: not alive(), what="the end of the kernel")
    context.close()


def test_where_the_controls_are_below_the_charts_only_the_first_group_is_open(page, eventually):
    groups = page.locator(".dl-panel .group[open]")
    page.set_viewport_size({"width": 390, "height": 844})
    page.reload()
    opened(page)
    has(groups)
    tells(page.locator(".dl-panel .group").nth(1), "Machine", "devices in")
    # What stays in view as one scrolls leaves most of the screen to the controls.
    eventually(lambda: page.locator(".dl-top").bounding_box()["height"] < 240)
    page.set_viewport_size({"width": 1280, "height": 900})
    page.reload()
    opened(page)
    has(groups, 3)


def test_it_is_for_everybody_at_every_width(page, eventually):
    everyone_can_use(page)
