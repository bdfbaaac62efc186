"""A question's widget by itself, with a stand-in for its kernel."""

from pathlib import Path
from typing import Any

import pytest
from patience import eventually

from lib_dlhpc.explore import blocks

SCRIPT = Path(blocks.__file__).parent / "static" / "question.js"
pytestmark = pytest.mark.browser

# A card that is on the page, stage and all, before its question is drawn, as on a slow connection; no kernel hears it.
UNHEARD = """async script => {
  const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  const { default: widget } = await import(url);
  const state = { kind: "number", question: "How many ms?", gates: true, verdict: {}, name: "q", given: [] };
  const model = { get: name => state[name], set: (name, value) => { state[name] = value; }, on: () => {},
    save_changes: () => { if (state.given.length) throw new Error("no connection"); } };
  document.body.innerHTML = '<div class="dlhpc-card"><div id="here"></div><div class="dlhpc-stage"></div></div>';
  widget.render({ model, el: document.getElementById("here") });
  document.querySelector("input").value = "16";
  document.querySelector("button").click();
  await new Promise(done => setTimeout(done));
  return document.querySelector(".dlhpc-question").innerText;
}"""


def test_that_an_answer_is_not_recorded_stays_in_view(chromium: Any) -> None:
    page = chromium.new_context().new_page()
    page.route("http://localhost/", lambda route: route.fulfill(body="", content_type="text/html"))
    page.goto("http://localhost/")
    script = SCRIPT.read_text(encoding="utf-8")
    eventually(lambda: "not recorded yet" in page.evaluate(UNHEARD, script))
    page.context.close()
