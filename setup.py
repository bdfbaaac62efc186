"""What pyproject.toml cannot say: the course in the wheel, and a README whose links work on a package page.

modules/, labs/ and the guide in docs/ become lib_dlhpc/course. PROJECT_HOME, set by the release
workflow, is the address of the repository.
"""

import os
import re
import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).parent))  # a build backend does not put it there

from lib_dlhpc import __version__
from lib_dlhpc.explore import files

HERE = Path(__file__).parent
HOME = os.environ.get("PROJECT_HOME", "").rstrip("/")
RELATIVE = re.compile(r"(!?)\[([^]]+)\]\((?!https?:|#)([^)]+)\)")


class WithCourse(build_py):
    """Builds the package, then copies the course into it; an editable installation finds it in the clone."""

    def run(self):
        """Build."""
        super().run()
        if not self.editable_mode:
            course = Path(self.build_lib) / "lib_dlhpc" / "course"
            shutil.rmtree(course, ignore_errors=True)  # of an earlier build
            files.copy(course)


def readme():
    """Return the README with an address for each file; where HOME is unknown, with neither picture nor such links."""

    def linked(found):
        image, text, file = found.groups()
        if not HOME:
            return "" if image else text
        return f"{image}[{text}]({HOME}/{'raw' if image else 'blob'}/v{__version__}/{file})"

    return RELATIVE.sub(linked, (HERE / "README.md").read_text(encoding="utf-8"))


setup(
    cmdclass={"build_py": WithCourse},
    long_description=readme(),
    long_description_content_type="text/markdown",
    project_urls={"Source": HOME, "Issues": f"{HOME}/issues"} if HOME else {},
)
