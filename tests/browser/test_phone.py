"""A module on a phone is a path of folded sections: nothing is lost, and all come back as they were left."""

import pytest
from axe import findings, low_contrast
from lesson_page import LessonPage, has, is_as_wide_as_its_window, tells

pytestmark = pytest.mark.browser

NOTEBOOK = "05_hybrid_parallel.ipynb"
QUESTIONS = 32
SECTION, SUMMARY = ".dlhpc-section", ".dlhpc-section > summary"
SCREEN = 844  # px
OPEN = f"[...document.querySelectorAll('{SECTION}')].map((each, i) => each.open ? i : -1).filter(i => i >= 0)"


@pytest.fixture(scope="module")
def page(server, open_lasting_page, eventually):
    """A module that is opened on a phone."""
    address = f"{server[0]}voila/render/{NOTEBOOK}"
    page = LessonPage(open_lasting_page(address, width=390))
    page.set_viewport_size({"width": 390, "height": SCREEN})
    has(page.locator(".dlhpc-question"), QUESTIONS)
    return page


def test_it_opens_as_a_list_of_headings_that_say_what_is_in_them(page, eventually):
    headings = page.get_by_role("heading", level=2)
    has(headings, 10)
    has(page.locator(SUMMARY), 10)
    tells(headings.first, "What was published?")
    tells(headings.last, "What surprised you")
    eventually(lambda: page.evaluate(OPEN) == [], what="folded sections")
    tells(page.locator(SUMMARY).first, "2 to answer")
    height = "document.documentElement.scrollHeight"
    eventually(lambda: page.evaluate(height) < 4 * SCREEN, what=lambda: str(page.evaluate(height)))


def test_one_chart_waits_for_a_guess_and_the_controls_come_with_the_result(page, eventually):
    card = page.locator(".dlhpc-page").first
    eventually(lambda: card.locator(".dlhpc-plot:visible").count() == 1, what="one chart")
    has(card.locator(".dlhpc-controls:visible"), 0)
    page.commit(0, "10")
    eventually(lambda: card.locator(".dlhpc-plot:visible").count() == 3, what="all charts")
    has(card.locator(".dlhpc-controls:visible"))


def test_controls_are_one_line_that_says_where_they_stand_until_they_are_tapped(page, eventually):
    controls = page.locator(".dlhpc-page").first.locator(".dlhpc-controls")
    line, sliders = controls.locator("button.fold"), controls.get_by_role("slider")
    tells(line, "Controls", "GPUs", " · ")
    eventually(lambda: controls.bounding_box()["height"] < 60)
    has(sliders, 0)
    line.click()
    eventually(lambda: sliders.count() > 0)
    line.click()
    has(sliders, 0)


def test_a_tap_opens_a_section_and_answers_are_counted(page, eventually):
    page.locator(SUMMARY).first.click()
    eventually(lambda: page.evaluate(OPEN) == [0])
    section = page.locator(SECTION).first
    tells(section, "Oyama et al. 2019")
    question = section.locator(".dlhpc-question").first
    for option in question.get_by_role("button").all():
        option.click()
    eventually(lambda: question.get_attribute("data-final") is not None, what="its answer")
    page.locator(SUMMARY).first.click()
    tells(page.locator(SUMMARY).first, "1 of 2 done")


def test_a_link_to_a_heading_opens_its_section(page, eventually):
    page.locator(".contents summary").click()
    page.locator(".contents .here a", has_text="Stages, slabs, or both?").click()
    eventually(lambda: page.evaluate(OPEN) == [2])
    section = page.locator(SECTION).nth(2)
    has(section.locator(".dlhpc-question:visible"), 4)
    covered = section.locator(".dlhpc-stage.covered")
    has(covered)
    section.get_by_role("button", name="Skip").click()
    has(covered, 0)


def test_the_path_is_one_tap_away_and_says_where_one_is(page, eventually):
    fold = page.locator(".contents")
    fold.locator("summary").click()
    has(fold.locator(".path a"), 13)
    tells(fold.locator(".path a[aria-current='page']"), "05 Hybrid and spatial parallelism")
    fold.locator(".path a").nth(3).click(trial=True)  # nothing of the page lies above it
    page.locator(".where").click()  # elsewhere
    eventually(lambda: fold.get_attribute("open") is None)


def test_a_page_that_is_loaded_again_has_the_same_sections_open(page, eventually):
    page.evaluate("history.replaceState(null, '', location.pathname)")
    page.reload()
    has(page.locator(".dlhpc-question"), QUESTIONS)
    eventually(lambda: page.evaluate(OPEN) == [2])
    tells(page.locator(SECTION).nth(2), "Skipped. It is")
    tells(page.locator(".where"), "done, 1 skipped")


@pytest.mark.parametrize("width", ["360px", "800px"])
def test_all_of_it_is_printed_and_what_was_folded_is_folded_afterward(page, eventually, width):
    page.evaluate(f"addEventListener('beforeprint', () => {{ window.printed = {OPEN}.length; }})")
    page.pdf(width=width, height="1100px")
    eventually(lambda: page.evaluate("window.printed") == 10, what="all sections, printed")
    eventually(lambda: page.evaluate(OPEN) == [2], what=lambda: str(page.evaluate(OPEN)))


def test_it_is_for_everybody(page, eventually):
    page.evaluate(
        f"document.querySelectorAll('{SECTION}').forEach(each => {{ each.open = true; }})"
    )
    is_as_wide_as_its_window(page, 390)
    for scheme, look in (("dark", low_contrast), ("light", findings)):
        page.emulate_media(color_scheme=scheme)
        eventually(lambda look=look: look(page) == [], lambda look=look: str(look(page)))


def test_a_wider_window_has_all_open_without_folds(page, eventually):
    page.evaluate(
        f"document.querySelectorAll('{SECTION}').forEach(each => {{ each.open = false; }})"
    )
    page.set_viewport_size({"width": 1280, "height": 900})
    eventually(lambda: len(page.evaluate(OPEN)) == 10)
    has(page.locator(f"{SUMMARY}:visible"), 0)
    has(page.locator(".dlhpc-text h2:visible"), 10)
