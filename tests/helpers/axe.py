"""What axe-core finds wrong with a page, of what keeps people out of it."""

from functools import cache
from importlib.resources import files
from typing import Any

# Drawings are hidden from those to whom their words are read; axe does not judge what is painted, and is sooner done
# where it is not there.
RUN = """async options => {
  const style = document.head.appendChild(document.createElement("style"));
  style.textContent = ".dlhpc-plot svg > *, svg[aria-hidden=true] > * { display: none }";
  const { violations } = await axe.run({ exclude: [".dlhpc-plot svg"] }, { resultTypes: ["violations"], ...options });
  style.remove();
  return violations.filter(found => ["serious", "critical"].includes(found.impact))
    .map(found => [found.id, found.nodes.length, found.nodes.slice(0, 4)
      .map(node => node.html.slice(0, 160) + " | " + node.failureSummary.slice(0, 200))]); }"""


@cache
def _code() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def findings(page: Any, *rules: str) -> list[Any]:
    """Return serious and critical findings: rule, how many places, some of them. rules: only these."""
    if not page.evaluate("!!window.axe"):
        page.evaluate(_code())
    moderate = {"rules": {"region": {"enabled": False}}}  # never a finding here, and slow
    return list(page.evaluate(RUN, {"runOnly": list(rules)} if rules else moderate))
