"""A question's widget by itself, with a stand-in for its kernel."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import eventually

from lib_dlhpc.explore import blocks

SCRIPT = Path(blocks.__file__).parent / "static" / "question.js"
pytestmark = pytest.mark.browser

# A card that is on the page, stage and all, before its question is drawn, as on a slow connection; no kernel hears it.
CARD = """async ([script, answer, verdict, question]) => {
  const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  const { default: widget } = await import(url);
  const state = { kind: "number", question, gates: true, verdict, name: "q", given: [] };
  let progress = null;
  addEventListener("dlhpc-progress", ({ detail }) => { progress = detail; });
  const model = { get: name => state[name], set: (name, value) => { state[name] = value; }, on: () => {},
    save_changes: () => { if (state.given.length) throw new Error("no connection"); } };
  document.body.innerHTML = '<div class="dlhpc-card"><div id="here"></div><div class="dlhpc-stage"></div></div>';
  widget.render({ model, el: document.getElementById("here") });
  if (answer) {
    document.querySelector("input").value = answer;
    document.querySelector(answer === "skip" ? "button.quiet" : "button").click();
  }
  await new Promise(done => setTimeout(done));
  const covered = document.querySelector(".dlhpc-stage").classList.contains("covered");
  return { text: document.querySelector(".dlhpc-question").innerText, covered, uncovered: state.uncovered ?? false,
    html: document.querySelector(".dlhpc-question").innerHTML, given: state.given.slice(1), progress };
}"""


@pytest.fixture
def card(chromium: Any) -> Iterator[Callable[..., dict[str, Any]]]:
    """Return what draws a card, answers it, and says what is seen; the address may say how gates are."""
    page = chromium.new_context().new_page()
    page.route("http://localhost/*", lambda route: route.fulfill(body="", content_type="text/html"))

    def drawn(
        answer: str = "", address: str = "", verdict: Any = None, question: str = "How many ms?"
    ) -> dict[str, Any]:
        page.goto(f"http://localhost/{address}")
        script = SCRIPT.read_text(encoding="utf-8")
        found = dict(page.evaluate(CARD, [script, answer, verdict or {}, question]))
        page.evaluate("localStorage.removeItem('dlhpc-unheard')")  # as if a kernel had heard it
        return found

    yield drawn
    page.context.close()


def test_that_an_answer_is_not_recorded_stays_in_view_and_is_no_wrong_answer(card):
    said = "⚠\ufe0e No answer from the Python process: not recorded yet"
    eventually(lambda: said in card("16")["text"])
    eventually(lambda: "✗" not in card("16")["text"])


def test_without_gates_a_card_is_open_and_its_kernel_hears_so(card):
    before, off = card(), card(address="?gates=off")
    assert before["covered"] and not before["uncovered"]
    assert off["uncovered"] and not off["covered"]


def test_what_was_skipped_is_skipped_again_after_a_reload_but_in_a_class(card):
    card("skip")
    eventually(lambda: card()["given"] == ["", True])
    eventually(lambda: card(address="?gates=on")["given"] == [])


def test_what_is_asked_is_bold_what_is_given_is_not_and_asterisks_are_emphasis(card):
    given = "A step of 3.5 ms, on *each* rank. "
    question, verdict = f"{given}How many ms? Count *both* ways.", {"words": "*Two* 3 * 4."}
    asked = "on <em>each</em> rank. <b>How many ms? Count <em>both</em> ways.</b>"

    def html() -> str:
        return str(card(question=question, verdict=verdict)["html"])

    eventually(lambda: asked in html() and "<em>Two</em> 3 * 4." in html(), html)


def test_progress_tells_what_was_skipped_from_what_was_answered(card):
    skipped = {"final": True, "right": None, "words": "It is 3 ms."}
    eventually(lambda: "Skipped. It is 3 ms." in card(verdict=skipped)["text"])
    for verdict, counted in (
        (skipped, {"done": 0, "skipped": 1, "of": 1}),
        ({**skipped, "right": False, "answer": "4"}, {"done": 1, "skipped": 0, "of": 1}),
    ):
        eventually(lambda v=verdict, c=counted: card(verdict=v)["progress"] == c)
