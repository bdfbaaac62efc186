"""The experiment as a file: download it as TOML, load one back. A loaded file is data, never code."""

from pathlib import Path

import anywidget
import traitlets

from lib_dlhpc.spec.files import LARGEST_FILE

HERE = Path(__file__).parent


class ExperimentFile(anywidget.AnyWidget):
    """Buttons to save and to load; the browser refuses files that are too large before sending them.

    text: the TOML to save. loaded: [serial, text] of the newest file that the visitor chose.
    problem: what was wrong with it, shown beside the buttons.
    """

    _esm = HERE / "static" / "experiment_file.js"

    text = traitlets.Unicode().tag(sync=True)
    loaded: traitlets.List = traitlets.List().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)
    largest = traitlets.Int(LARGEST_FILE).tag(sync=True)
