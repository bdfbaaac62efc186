"""The course in the wheel: modules/ and labs/ become lib_dlhpc/course. All else is in pyproject.toml."""

import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).parent))  # a build backend does not put it there

from lib_dlhpc.explore import files


class WithCourse(build_py):
    """Builds the package, then copies the course into it; an editable installation finds it in the clone."""

    def run(self):
        """Build."""
        super().run()
        if not self.editable_mode:
            course = Path(self.build_lib) / "lib_dlhpc" / "course"
            shutil.rmtree(course, ignore_errors=True)  # of an earlier build
            files.copy(course)


setup(cmdclass={"build_py": WithCourse})
