"""The program of a job: it does its share of the chunks that a file beside their results lists."""

import json
import sys
from pathlib import Path

from lib_dlhpc.scale_out.work import do, read_work


def main(chunks: str, number: str, many: str) -> None:
    """Do every `many`-th of the listed chunks, from `number` on; those with a result are not done again."""
    path = Path(chunks)
    work, missing = read_work(path.parent), json.loads(path.read_text("utf-8"))
    for chunk in missing[int(number) :: int(many)]:
        do(work, chunk, str(path.parent))


if __name__ == "__main__":
    main(*sys.argv[1:])
