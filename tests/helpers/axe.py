"""What axe-core finds wrong with a page, of what keeps people out of it."""

from functools import cache
from importlib.resources import files
from typing import Any

# Marks, of each look, the first and the last text: one tag, class, state and style on one ground has one contrast.
# A ground is what is painted, moved or hidden around it; what does none of these is not part of it.
# axe takes longer to judge the contrast of hundreds of alike cells and choices than for all its other rules together.
MARK = "data-look"
LOOKS = f"""() => {{
  const styles = ["color", "backgroundColor", "backgroundImage", "opacity", "fontSize", "fontWeight", "textShadow",
    "position", "clipPath", "visibility", "filter"];
  const nothing = {{ backgroundColor: "rgba(0, 0, 0, 0)", backgroundImage: "none", opacity: "1", position: "static",
    clipPath: "none", filter: "none" }};
  const numbers = new Map(), grounds = new Map(), first = new Map(), last = new Map();
  const number = words => numbers.set(words, numbers.get(words) ?? numbers.size).get(words);
  const state = element => {{
    const {{ disabled }} = element.control ?? element;
    return [disabled, element.ariaDisabled, element.inert].join("|"); }};
  const behind = element => {{
    if (!element || grounds.has(element)) return grounds.get(element);
    const style = getComputedStyle(element), around = behind(element.parentElement);
    const own = Object.keys(nothing).map(name => style[name]), here = state(element);
    const plain = own.join() === Object.values(nothing).join() && !here.includes("true");
    grounds.set(element, plain ? around : number([around, here, ...own].join("|")));
    return grounds.get(element); }};
  const look = element => {{
    const style = getComputedStyle(element);
    return number([behind(element), behind(element.parentElement), element.tagName, element.getAttribute("class"),
      state(element), element.checkVisibility(), ...styles.map(name => style[name])].join("|")); }};
  for (const element of document.body.querySelectorAll("*")) {{
    const words = [...element.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.data.trim());
    if (!words && !element.matches("input, select, textarea")) continue;
    const own = look(element);
    if (!first.has(own)) first.set(own, element);
    last.set(own, element);
  }}
  for (const element of [...first.values(), ...last.values()]) element.setAttribute("{MARK}", ""); }}"""
# Drawings are hidden from those to whom their words are read; axe does not judge what is painted, and is sooner done
# where it is not there: half of a page's elements.
RUN = f"""async options => {{
  const drawings = [...document.querySelectorAll(".dlhpc-plot svg, svg[aria-hidden=true]")];
  const painted = drawings.map(svg => [...svg.childNodes]);
  drawings.forEach(svg => svg.replaceChildren());
  ({LOOKS})();
  const context = {{ exclude: [".dlhpc-plot svg"] }};
  const {{ violations }} = await axe.run(context, {{ resultTypes: ["violations"], ...options }});
  drawings.forEach((svg, i) => svg.replaceChildren(...painted[i]));
  for (const element of document.querySelectorAll("[{MARK}]")) element.removeAttribute("{MARK}");
  return violations.filter(found => ["serious", "critical"].includes(found.impact))
    .map(found => [found.id, found.nodes.length, found.nodes.slice(0, 4)
      .map(node => node.html.slice(0, 160) + " | " + node.failureSummary.slice(0, 200))]); }}"""
CONTRAST = "color-contrast"
ONE_OF_EACH = f"axe.configure({{ rules: [{{ id: '{CONTRAST}', selector: '[{MARK}]' }}] }})"
ALL = {"rules": {"region": {"enabled": False}}}  # a region is never a finding here, and slow


@cache
def _code() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def low_contrast(page: Any) -> list[Any]:
    """Return texts that can hardly be read in the page's theme: rule, how many places, some of them."""
    return _run(page, {"runOnly": [CONTRAST]})


def findings(page: Any) -> list[Any]:
    """Return all serious and critical findings, contrast included: rule, how many places, some of them."""
    return _run(page, ALL)  # at once: what is where on the page is found out once for all rules


def _run(page: Any, options: dict[str, Any]) -> list[Any]:
    if not page.evaluate("!!window.axe"):
        page.evaluate(_code())
        page.evaluate(ONE_OF_EACH)
    return list(page.evaluate(RUN, options))
