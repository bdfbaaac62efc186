"""Make the Vega bundle that every page draws with; run again when Altair moves to a new Vega-Lite.

    python lib_dlhpc/explore/blocks/static/build.py        (needs Node.js and npm; nothing else here does)

The result is one JavaScript module of about 0.8 MB with exactly the versions named below.  It lies
in the Voila template, which is what serves it; `figure.py` reads the same file for notebooks.
"""

import subprocess
import tempfile
from pathlib import Path

PACKAGES = {"vega": "6.4.0", "vega-lite": "6.4.3", "esbuild": "0.28.2"}
TARGET = (
    Path(__file__).parents[2] / "server" / "voila" / "templates" / "dlhpc" / "static" / "vega.js"
)

# The figures wait for this name, or for this event when they are there first.
ENTRY = """
import { View, parse, changeset, truthy } from "vega";
import { compile } from "vega-lite";
globalThis.dlhpcVega ??= { View, parse, changeset, truthy, compile };
globalThis.dispatchEvent(new Event("dlhpc-vega"));
"""

NOTICE = """\
/* Vega {vega} and Vega-Lite {vega-lite} with their dependencies, bundled by static/build.py;
   not to be edited.  Vega, Vega-Lite: BSD-3-Clause, University of Washington Interactive Data Lab.
   D3 modules: ISC, Mike Bostock.  Full texts: vega.LICENSE.txt beside this file. */
"""


def main() -> None:
    """Fetch the packages into a folder that does not stay, bundle them, collect their licences."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "package.json").write_text("{}")
        (work / "entry.js").write_text(ENTRY)
        wanted = [f"{name}@{version}" for name, version in PACKAGES.items()]
        subprocess.run(["npm", "install", "--silent", *wanted], cwd=work, check=True)
        bundle = ["node_modules/.bin/esbuild", "entry.js", "--bundle", "--minify"]
        options = ["--format=esm", "--target=es2022", "--legal-comments=none", "--charset=utf8"]
        subprocess.run([*bundle, *options, "--outfile=vega.js"], cwd=work, check=True)
        TARGET.parent.mkdir(parents=True, exist_ok=True)
        notice = NOTICE.format_map(PACKAGES)
        TARGET.write_text(notice + (work / "vega.js").read_text("utf-8"), encoding="utf-8")
        TARGET.with_name("vega.LICENSE.txt").write_text(_licences(work), encoding="utf-8")
    print(f"{TARGET}: {TARGET.stat().st_size / 1e6:.2f} MB")


def _licences(work: Path) -> str:
    """Each licence text once, under the names of the packages that carry it."""
    holders: dict[str, list[str]] = {}
    for file in sorted((work / "node_modules").glob("*/LICENSE*")):
        if file.parent.name.startswith(("d3-", "vega", "topojson", "internmap", "delaunator")):
            text = file.read_text(encoding="utf-8").strip()
            holders.setdefault(text, []).append(file.parent.name)
    rule = "\n\n" + "-" * 78 + "\n\n"
    return rule.join(f"{', '.join(names)}\n\n{text}" for text, names in holders.items()) + "\n"


if __name__ == "__main__":
    main()
