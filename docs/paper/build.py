"""Write the paper for the Journal of Open Source Education: its text with the library's numbers, figures, bibliography.

make paper        or        python docs/paper/build.py [FOLDER]
"""

import datetime
import shutil
import sys
from pathlib import Path

import numpy as np

from lib_dlhpc import predict, validate
from lib_dlhpc.explore.course import LABS, PATH
from lib_dlhpc.explore.front.results import NODES, goyal
from lib_dlhpc.prediction.validation.validate import Validation, summary
from lib_dlhpc.results.charts import save
from lib_dlhpc.teaching.questions import read

HERE = Path(__file__).resolve().parent
EXAM = HERE.parents[1] / "instructor_notes" / "exam"


def main(folder: Path) -> None:
    """Write paper.md, paper.bib and the figures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = validate()
    (folder / "paper.md").write_text(text(rows), encoding="utf-8")
    shutil.copy(HERE / "paper.bib", folder)
    save(rows.plot(), folder / "published.png")
    save(predict(goyal().set({"strategy.nodes": np.array(NODES)})).plot(), folder / "goyal.png")
    print(folder / "paper.md")


def text(rows: Validation) -> str:
    """Return the paper with the numbers of today's library."""
    found = summary(rows)
    data, splits = found["data parallel"], found["all splits"]
    return (
        (HERE / "paper.md.in")
        .read_text(encoding="utf-8")
        .format(
            date=datetime.date.today().strftime("%d %B %Y"),
            modules=len(PATH) + 1,  # with the explorer
            labs=len(LABS),
            chapters=" ".join(f"*{each.title}*: {each.question}" for each in PATH),
            exam=sum(len(read(path, "QUESTIONS")) for path in sorted(EXAM.glob("*.py"))),
            rows=len(rows),
            data_rows=int(data["rows"]),
            data_median=f"{data['median']:.0%}",
            split_rows=int(splits["rows"]),
            split_median=f"{splits['median']:.0%}",
            split_worst=f"{1 - splits['worst']:.0%}",
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/paper"))
