"""The lesson on data parallelism as a learner uses it: guesses uncover, every control is seen to move something."""

import json

import pytest
from lesson_page import MOST_MEMORY, everyone_can_use, has, largest_kernel, tells

from lib_dlhpc.explore.data_parallel.scaling import strong_gain

pytestmark = pytest.mark.browser

NOTEBOOK = "02_data_parallel.ipynb"
PLOTS = 8
QUESTIONS = 37
MOVES = {
    0: {"GPUs": "ArrowLeft", "Exchange": "after backward"},
    1: {"GPUs": "ArrowLeft", "One slow GPU": "half as fast"},
    2: {"Workers": "ArrowLeft", "Slow worker": "half as fast"},
    3: {"GPUs": "ArrowLeft", "Allreduce": "ring"},
}
# A number: that choice of a list.
GUESSES = {0: "20", 7: "5", 11: "4", 16: "5", 21: "8", 25: 2, 26: "4"}


def test_what_the_question_gives_away_is_drawn_and_its_answer_is_not(closed, eventually):
    """The first chart has the bars of forward and backward; no other mark of the page's covered charts is seen."""
    seen = """() => [...document.querySelectorAll(".dlhpc-stage.covered .role-mark :is(path, text, line)")]
      .filter(node => getComputedStyle(node).visibility === "visible" && node.__data__?.datum)
      .map(node => node.__data__.datum.look ?? node.__data__.datum.words)"""
    known = {"forward", "backward", "rank 0"}
    eventually(lambda: set(closed.evaluate(seen)) == known, what=lambda: closed.evaluate(seen))


def test_nothing_is_shown_before_a_guess_and_the_guess_is_kept(closed):
    before = "256 GPUs over 32 times one node of 8"
    closed.a_guess_uncovers(GUESSES, 0, before, "it is 11.1 ms", "a factor of 1.8")


def test_what_to_try_takes_a_line_and_stays_beside_its_figure(closed, eventually):
    # Its heading is above it on a phone.
    section = closed.locator(".dlhpc-section", has_text="Who waits for whom?")
    waits = section.locator(".dlhpc-row.with-figure").first
    end = "row => scrollBy(0, row.getBoundingClientRect().bottom - 0.7 * innerHeight)"
    waits.evaluate(end)
    top = "text => text.getBoundingClientRect().top"
    eventually(lambda: 50 < waits.locator(".dlhpc-text.after").evaluate(top) < 80)
    closed.set_viewport_size({"width": 390, "height": 844})
    has(waits.locator(".step .entry:visible"), 0)  # it needs the figure, which waits for a guess
    entry = closed.locator(".dlhpc-row.with-figure").first.locator(".step .entry").first
    eventually(lambda: 0 < entry.evaluate("entry => entry.offsetHeight") < 50)
    closed.set_viewport_size({"width": 1280, "height": 900})
    closed.evaluate("scrollTo(0, 0)")


def test_text_and_questions_begin_at_one_edge_and_an_introduction_stands_with_its_card(
    closed, eventually
):
    edges = """() => ["h1", "h1 ~ p", ".dlhpc-question.step", "h2"].map(name => {
      const each = document.querySelector(`#rendered_cells ${name}`); return each.getBoundingClientRect().left; })"""
    eventually(lambda: len(set(closed.evaluate(edges))) == 1, what=lambda: closed.evaluate(edges))
    review = closed.locator(".dlhpc-row.review", has_text="From earlier modules.")
    has(review.locator(".dlhpc-figures .dlhpc-question.check"), 2)


@pytest.mark.parametrize("row", [".dlhpc-row.review", ".dlhpc-row.checks"])
def test_short_questions_stand_two_by_two(closed, eventually, row):
    tops = "all => all.map(each => Math.round(each.getBoundingClientRect().top))"
    found = closed.locator(f"{row} .dlhpc-question")
    eventually(lambda: (top := found.evaluate_all(tops))[0] == top[1] and top == sorted(top))


def test_references_are_folded(closed, eventually):
    references = closed.locator("details:not(.dlhpc-section)", has_text="Further reading (")
    has(references.locator("a:visible"), 0)
    references.locator("summary").click()
    eventually(lambda: references.locator("a:visible").count() > 5)


@pytest.mark.parametrize("index", MOVES)
def test_a_slider_and_a_list_are_seen_to_move_a_drawing(page, index):
    page.controls_move_drawings(index, MOVES[index])


def test_the_address_shows_a_figure_as_it_stands_and_another_one_sets_it(page, eventually):
    page.slider_moves(0, "GPUs", "ArrowLeft")
    eventually(lambda: "figure=buckets&gpus=" in page.evaluate("location.hash"))
    page.evaluate("location.hash = 'v1&figure=buckets&gpus=8&bucket=1 MB&ranks=2'")
    controls = page.experiment(0).locator(".dlhpc-controls")
    tells(controls, "1 MB", "Not understood in the address: ranks = 2.")
    eventually(lambda: page.evaluate("location.hash").endswith("gpus=8&bucket=1%20MB"))
    page.evaluate("location.hash = 'v1&figure=buckets'")
    tells(controls, "25 MB")


def test_a_control_restyles_its_experiment_and_not_the_page(page, eventually, chromium):
    """A rule with :has() can have each change of a widget resolve the style of the whole page, in 20 ms or more."""
    everything = eventually(lambda: page.evaluate("document.querySelectorAll('*').length"))
    chromium.start_tracing(page=page.page, categories=["devtools.timeline"])
    for key in ("ArrowRight", "ArrowLeft"):
        page.slider_moves(1, "Jitter", key)
    events = json.loads(chromium.stop_tracing())["traceEvents"]
    styles = [event["args"] for event in events if event["name"] == "UpdateLayoutTree"]
    assert 0 < max(style.get("elementCount", 0) for style in styles) < everything / 3


def test_a_slow_worker_makes_the_asynchronous_first(page, eventually):
    page.choose(2, "Slow worker", "a quarter as fast")
    said = page.experiment(2).locator(".dlhpc-verdict")
    eventually(lambda: "Asynchronous is the first" in said.inner_text())


def test_walls_say_why(page, eventually):
    page.choose(0, "Exchange", "after backward")
    eventually(lambda: "Nothing is hidden" in page.wall(0))
    page.choose(1, "One slow GPU", "half as fast")
    eventually(lambda: "One slow GPU among 256" in page.wall(1))
    page.choose(2, "Slow worker", "none")
    page.experiment(2).get_by_role("slider", name="Learning rate", exact=True).press("End")
    eventually(lambda: "asynchronous diverges" in page.wall(2))
    handle = page.experiment(3).get_by_role("slider", name="GPUs", exact=True)
    handle.press("Home")
    eventually(lambda: "Memory" in page.wall(3))
    handle.press("End")
    eventually(lambda: "less than one each" in page.wall(3))


def test_a_check_answers_the_mistake_behind_a_wrong_answer(page, eventually):
    page.get_by_role("button", name="half the time", exact=True).click()
    eventually(lambda: page.get_by_text("Only the computation halves.").count() == 1)
    page.get_by_role("button", name=f"{1 / strong_gain(256, 512):.0%} of the time").click()
    eventually(lambda: page.get_by_text("Yes: the terms that do not shrink").count() == 1)


def test_a_real_run_leaves_the_page_usable_and_can_be_cancelled(page, eventually, server):
    run = page.get_by_role("button", name="Exchange on 4 MPI ranks")
    panel = page.locator(".dlhpc-results").filter(has=run).last
    cancel = panel.get_by_role("button", name="Cancel").click
    page.moves_meanwhile(0, "Bucket", run, "4 ranks are at work", server[1], then=cancel)
    tells(panel, "Cancelled.")
    eventually(run.is_enabled, what="another run")


def test_whole_steps_train_on_real_ranks_and_stand_beside_their_prediction(page, eventually):
    panel = page.experiment(4)
    for ranks, said in ((1, "1 rank"), (2, "2 ranks")):
        panel.get_by_role("slider", name="Ranks", exact=True).press(
            "Home" if ranks == 1 else "ArrowRight"
        )
        eventually(lambda t=said: panel.get_by_text(t).count() >= 1)
        panel.get_by_role("button", name="Train").click()
        eventually(lambda t=said: f"on {t};" in panel.inner_text())
    eventually(lambda: panel.locator("table").count() == 2)
    tells(panel, "predicted", "simulated", "measured", "calibrates")
    has(panel.locator(".dlhpc-plot svg"))


def test_everyone_can_use_the_page_and_it_costs_little_memory(page, server):
    everyone_can_use(page)
    assert 0 < largest_kernel(server[1]) < MOST_MEMORY


# Whether a box around a definition hides its end.
CUT = """text => {
  const { bottom } = text.getBoundingClientRect();
  for (let box = text.parentElement; box.id !== "rendered_cells"; box = box.parentElement)
    if (getComputedStyle(box).overflowY !== "visible" && box.getBoundingClientRect().bottom < bottom) return true;
  return false; }"""


def test_a_term_has_its_definition_under_the_focus_inside_the_window(page, eventually):
    page.set_viewport_size({"width": 390, "height": 844})
    terms = page.locator(".dlhpc-term:visible")  # others are in a folded list
    eventually(lambda: terms.count() >= 10, what="terms")
    for term in terms.all():
        text = term.get_by_role("tooltip")
        term.focus()
        eventually(text.is_visible, what="a definition")
        eventually(lambda t=text: is_inside(t.bounding_box(), 390), what="a place in the window")
        eventually(lambda t=text: not t.evaluate(CUT), what="all of the definition")
        page.keyboard.press("Escape")
        eventually(text.is_hidden, what="no definition")


# The controls that the header covers where the browser scrolls them to the top of the window.
COVERED = """() => [...document.querySelectorAll("#rendered_cells :is(input, select, button, summary)")]
  .filter(each => {
    each.scrollIntoView();
    const { top, height } = each.getBoundingClientRect(), header = document.querySelector(".dlhpc-top");
    return height > 0 && top < header.getBoundingClientRect().bottom;
  }).map(each => each.outerHTML)"""


@pytest.mark.parametrize("width", [1280, 800])
def test_a_control_that_is_scrolled_to_is_not_under_the_header(page, eventually, width):
    page.set_viewport_size({"width": width, "height": 800})
    eventually(lambda: page.evaluate(COVERED) == [], what=lambda: str(page.evaluate(COVERED)))


# Charts that paper would cut off.
CUT_OFF = """() => [...document.querySelectorAll(".dlhpc-plot > svg")].filter(svg => svg.clientWidth
  > svg.parentElement.clientWidth + 1).length"""


def test_paper_is_light_and_has_whole_charts_without_header_and_buttons(page, eventually):
    page.set_viewport_size({"width": 718, "height": 1016})  # A4 without its margins, in px
    page.emulate_media(media="print", color_scheme="dark")
    has(page.locator(".dlhpc-top:visible, .dlhpc-question button:not(.option):visible"), 0)
    scheme = "getComputedStyle(document.documentElement).colorScheme"
    eventually(lambda: page.evaluate(scheme) == "light")
    eventually(lambda: page.evaluate(CUT_OFF) == 0)
    page.emulate_media(media="screen", color_scheme="light")


def is_inside(box: dict[str, float] | None, width: int) -> bool:
    return box is not None and box["x"] >= 0 and box["x"] + box["width"] <= width
