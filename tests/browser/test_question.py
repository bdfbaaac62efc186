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
CARD = """async ([script, answer]) => {
  const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  const { default: widget } = await import(url);
  const state = { kind: "number", question: "How many ms?", gates: true, verdict: {}, name: "q", given: [] };
  const model = { get: name => state[name], set: (name, value) => { state[name] = value; }, on: () => {},
    save_changes: () => { if (state.given.length) throw new Error("no connection"); } };
  document.body.innerHTML = '<div class="dlhpc-card"><div id="here"></div><div class="dlhpc-stage"></div></div>';
  widget.render({ model, el: document.getElementById("here") });
  if (answer) {
    document.querySelector("input").value = answer;
    document.querySelector("button").click();
  }
  await new Promise(done => setTimeout(done));
  const covered = document.querySelector(".dlhpc-stage").classList.contains("covered");
  return { text: document.querySelector(".dlhpc-question").innerText, covered, uncovered: state.uncovered ?? false };
}"""


@pytest.fixture
def card(chromium: Any) -> Iterator[Callable[..., dict[str, Any]]]:
    """Return what draws a card, answers it, and says what is seen; the address may say how gates are."""
    page = chromium.new_context().new_page()
    page.route("http://localhost/*", lambda route: route.fulfill(body="", content_type="text/html"))

    def drawn(answer: str = "", address: str = "") -> dict[str, Any]:
        page.goto(f"http://localhost/{address}")
        return dict(page.evaluate(CARD, [SCRIPT.read_text(encoding="utf-8"), answer]))

    yield drawn
    page.context.close()


def test_that_an_answer_is_not_recorded_stays_in_view(card):
    eventually(lambda: "not recorded yet" in card("16")["text"])


def test_without_gates_a_card_is_open_and_its_kernel_hears_so(card):
    before, off = card(), card(address="?gates=off")
    assert before["covered"] and not before["uncovered"]
    assert off["uncovered"] and not off["covered"]
