"""The experiment as a notebook: the same numbers from the library, to go on from."""

import json
from typing import Any

from lib_dlhpc.spec.experiment import Experiment, dumps

CELLS = (
    "predict(experiment).summary()",
    "predict(experiment).plot()",
    'predict(experiment.set({"strategy.nodes": experiment.strategy.nodes})).terms'
    "  # change a field, compare",
    "simulate(experiment).plot()  # rank by rank; takes longer on many ranks",
)


def notebook(title: str, experiment: Experiment, link: str) -> str:
    """Return a notebook, as the text of its file, that predicts and simulates an experiment."""
    text = dumps(experiment).replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    load = f'from lib_dlhpc import loads, predict, simulate\n\nexperiment = loads("""\n{text}""")'
    about = f"# {title}\n\nFrom the what-if explorer" + (f", `#{link}`." if link else ".")
    cells: list[dict[str, Any]] = [{"cell_type": "markdown", "metadata": {}, "source": about}]
    for source in (load, *CELLS):
        cell = {"cell_type": "code", "metadata": {}, "source": source}
        cells.append({**cell, "outputs": [], "execution_count": None})
    cells = [{**cell, "id": f"cell-{number}"} for number, cell in enumerate(cells)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    body = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(body, indent=1)
