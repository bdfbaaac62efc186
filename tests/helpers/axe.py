"""What axe-core finds wrong with a page, of what keeps people out of it."""

from functools import cache
from importlib.resources import files
from typing import Any

# Of each look the first and the last text: one tag, class, state and style, as of all around it, has one contrast.
# axe takes longer to judge the contrast of hundreds of alike cells and choices than for all its other rules together.
LOOKS = """() => {
  const styles = ["color", "backgroundColor", "backgroundImage", "opacity", "fontSize", "fontWeight", "textShadow",
    "position", "clipPath", "visibility", "filter"];
  const numbers = new Map(), found = new Map(), first = new Map(), last = new Map();
  const look = element => {
    if (!element || found.has(element)) return found.get(element);
    const style = getComputedStyle(element), { disabled } = element.control ?? element;
    const own = [look(element.parentElement), element.tagName, element.getAttribute("class"), disabled,
      element.ariaDisabled, element.inert, element.checkVisibility(), ...styles.map(name => style[name])].join("|");
    if (!numbers.has(own)) numbers.set(own, numbers.size);
    found.set(element, numbers.get(own));
    return found.get(element); };
  for (const element of document.body.querySelectorAll("*")) {
    const words = [...element.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.data.trim());
    if (!words && !element.matches("input, select, textarea")) continue;
    if (!first.has(look(element))) first.set(look(element), element);
    last.set(look(element), element);
  }
  return [...new Set([...first.values(), ...last.values()])]; }"""
# Drawings are hidden from those to whom their words are read; axe does not judge what is painted, and is sooner done
# where it is not there.
RUN = f"""async ([options, looks]) => {{
  const style = document.head.appendChild(document.createElement("style"));
  style.textContent = ".dlhpc-plot svg > *, svg[aria-hidden=true] > * {{ display: none }}";
  const context = {{ exclude: [".dlhpc-plot svg"], ...(looks && {{ include: ({LOOKS})() }}) }};
  const {{ violations }} = await axe.run(context, {{ resultTypes: ["violations"], ...options }});
  style.remove();
  return violations.filter(found => ["serious", "critical"].includes(found.impact))
    .map(found => [found.id, found.nodes.length, found.nodes.slice(0, 4)
      .map(node => node.html.slice(0, 160) + " | " + node.failureSummary.slice(0, 200))]); }}"""
CONTRAST = "color-contrast"
# A region is never a finding here, and slow.
OTHERS = {"rules": {name: {"enabled": False} for name in ("region", CONTRAST)}}


@cache
def _code() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def low_contrast(page: Any) -> list[Any]:
    """Return texts that can hardly be read in the page's theme: rule, how many places, some of them."""
    if not page.evaluate("!!window.axe"):
        page.evaluate(_code())
    return list(page.evaluate(RUN, [{"runOnly": [CONTRAST]}, True]))


def findings(page: Any) -> list[Any]:
    """Return all serious and critical findings, contrast included: rule, how many places, some of them."""
    return low_contrast(page) + list(page.evaluate(RUN, [OTHERS, False]))
