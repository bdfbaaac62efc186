"""The front page of `dlhpc explore` as the first page of the site: its links lead to pages that need no server.

write(folder)    index.html, and the pictures that it shows, in folder
"""

import re
import shutil
from pathlib import Path

from lib_dlhpc.explore.front.page import RENDER, THEME, front_page

LABS, STATIC = "voila/labs/", "voila/templates/dlhpc/static/"
ADDRESS = re.compile(r'(href|content)="([^"]+)"')
OUTSIDE = ("#", "http")
LIVE = re.compile(r"<span data-live>.*?</span>", re.DOTALL)  # what needs a server
NOTE = """
<p class="sub">This copy needs no installation: the figure is live, modules are to read, with results
folded. To move their controls and run them on your machine, <a href="docs/guide/install.html">install</a>.</p>"""
BEFORE = '\n</div>\n<figure class="panel">'
GUIDE = '<a href="about.html">Guide</a>'


def write(folder: Path) -> None:
    """Write the front page of the site into `folder`."""
    text = linked(front_page().read_text(encoding="utf-8"))
    (folder / "index.html").write_text(text, encoding="utf-8")
    for name in ("share.png", "favicon.svg"):
        shutil.copy(THEME.with_name(name), folder / name)


def linked(page: str) -> str:
    """Return the front page with the addresses of the site, without what needs a server; ValueError for others."""
    text = ADDRESS.sub(
        lambda match: f'{match[1]}="{_address(*match.groups())}"', LIVE.sub("", page)
    )
    for place, more in ((BEFORE, NOTE), ("</nav>", GUIDE)):
        if text.count(place) != 1:
            raise ValueError(f"the front page has {place!r} {text.count(place)} times, not once.")
        text = text.replace(place, more + place)
    return text


def _address(kind: str, old: str) -> str:
    """Return where a link of the front page leads on the site."""
    if (kind == "content" and not old.startswith(STATIC)) or old.startswith(OUTSIDE):
        return old
    for before, after in ((RENDER, "modules/"), (LABS, "labs/"), (STATIC, "")):
        if old.startswith(before):
            path = Path(after + old.removeprefix(before))
            return (
                path.with_suffix(".html").as_posix()
                if path.suffix in (".ipynb", ".md")
                else str(path)
            )
    if old == "teach":
        return "teach.html"
    raise ValueError(f"the front page links to {old!r}, which the site does not have.")
