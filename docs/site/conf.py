"""Sphinx's settings of the documentation; `docs/build.py` gathers its pages."""

from lib_dlhpc import __version__

project = "lib_dlhpc"
copyright = "the lib_dlhpc developers"
version = release = __version__
extensions = ["myst_parser"]
myst_heading_anchors = 3
root_doc = "about"  # index.html is the front page
html_theme = "furo"
html_title = "lib_dlhpc"
html_copy_source = html_show_sphinx = False
