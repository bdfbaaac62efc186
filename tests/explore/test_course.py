"""The path of the course is what modules/README.md shows."""

import json
import re

from lib_dlhpc.explore.course import PATH


def test_the_table_of_modules_is_the_path(repository):
    text = (repository / "modules" / "README.md").read_text("utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| [")]
    assert len(rows) == len(PATH)
    for (name, asks, minutes, needs, labs), module in zip(rows, PATH, strict=True):
        assert name == f"| [{module.number} {module.title}]({module.file})"
        assert (asks, int(minutes)) == (module.question, module.minutes)
        assert needs == (", ".join(module.needs) or "nothing")
        assert all(f"../labs/{lab}/README.md" in labs for lab in module.labs)
        assert labs.count("README.md") == len(module.labs)


def test_a_notebook_needs_the_modules_that_the_path_says_it_does(repository):
    """A link in "You need" is a prerequisite, unless its sentence or clause says that the module helps."""
    for module in PATH:
        cells = json.loads((repository / "modules" / module.file).read_text("utf-8"))["cells"]
        (text,) = re.findall(
            r"^\*\*You need\*\* (.+)$", "\n".join("".join(c["source"]) for c in cells), re.M
        )
        clauses = re.split(r";|\. ", text.replace("This is the first module after", "helps"))
        needed = [clause for clause in clauses if "helps" not in clause]
        found = set(re.findall(r"\((\d\d)_\w+\.ipynb\)", " ".join(needed))) - {"00"}
        assert found == set(module.needs), module.file
