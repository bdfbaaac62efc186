"""A widget of the explorer that is drawn again, with a stand-in for its model: no click is lost."""

from pathlib import Path

import pytest
from patience import eventually

from lib_dlhpc.explore import explorer

STATIC = Path(explorer.__file__).parent / "static"
pytestmark = pytest.mark.browser

# As a model does, what is set to an equal value is not sent.
TWICE = """async ([script, state, name, press]) => {
  const { default: widget } = await import(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
  const sent = [];
  const model = { get: key => state[key], on: () => {}, off: () => {}, save_changes: () => {}, set: (key, value) => {
    if (JSON.stringify(state[key]) === JSON.stringify(value)) return;
    state[key] = value;
    sent.push(value);
  } };
  for (let time = 0; time < 2; time += 1) {
    document.body.innerHTML = '<div id="here"></div>';
    const gone = widget.render({ model, el: document.getElementById("here") });
    document.querySelector(press).click();
    gone();
  }
  return sent.length;
}"""
CONTROL = {
    "field": "f",
    "group": "Model",
    "label": "F",
    "kind": "tick",
    "help": "",
    "simple": True,
    "off": "",
    "options": ["off", "on"],
    "at": 0,
    "changed": False,
    "illegal": {},
}
PANEL = {
    "groups": [{"name": "Model", "summary": "", "open": True}],
    "controls": [CONTROL],
    "answered": 0,
}
WIDGETS = {
    "bar": ({"state": {}, "asked": [], "link": "x"}, "asked", ".tools button:nth-of-type(3)"),
    "plan": ({"state": {"words": "", "changes": {"a": 1}}, "asked": []}, "asked", "button"),
    "panel": ({"state": PANEL, "moved": []}, "moved", ".row input"),
}


@pytest.mark.parametrize("name", WIDGETS)
def test_the_first_click_after_a_redraw_is_sent(chromium, name):
    state, what, press = WIDGETS[name]
    page = chromium.new_context().new_page()
    script = (STATIC / f"{name}.js").read_text(encoding="utf-8")
    eventually(lambda: page.evaluate(TWICE, [script, state, what, press]) == 2)
    page.context.close()
