"""Where the course's notebooks are, and a copy of them to work in.

folder()        holds modules/ and labs/, and the guide that they link to, docs/
copy(target)    all three, in another folder
"""

import shutil
from contextlib import ExitStack
from pathlib import Path

from lib_dlhpc.errors import SpecError
from lib_dlhpc.lifetime.files import replacing

PACKAGE = Path(__file__).parents[1]
# What belongs to the course: no work of learners, no solution.
PARTS = {
    "modules": ("*.ipynb", "*.md"),
    "labs": (
        ".gitignore",
        "README.md",
        "experiments/*.toml",
        *(
            "*/README.md",
            "*/*.ipynb",
            "*/checks.py",
            "*/measure.py",
            "*/torch_*.py",
            "*/hints.toml",
        ),
    ),
    "docs": ("*.md", "guide/*.md"),
}


def folder() -> Path:
    """Return the folder of PARTS: inside the package where a wheel is installed, beside it in a clone."""
    inside = PACKAGE / "course"
    return inside if inside.is_dir() else PACKAGE.parent


def copy(target: Path) -> None:
    """Copy PARTS into a folder, which is made if needed.

    Raises SpecError if it has one of them, so that nobody's work is overwritten; OSError if it cannot be written.
    """
    for part in PARTS:
        if (target / part).exists():
            raise SpecError(
                f"{target / part}: exists, and is not overwritten. Name another folder."
            )
    source = folder()
    target.mkdir(parents=True, exist_ok=True)
    with ExitStack() as both:
        for part, patterns in PARTS.items():
            made = both.enter_context(replacing(target / part))
            for file in (file for pattern in patterns for file in (source / part).glob(pattern)):
                place = made / file.relative_to(source / part)
                place.parent.mkdir(parents=True, exist_ok=True)
                # Permissions are not copied: an installation may be read-only.
                shutil.copyfile(file, place)
