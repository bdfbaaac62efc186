"""The program of a job: it does every chunk of a folder whose number is its own, modulo the number of jobs."""

import sys
from pathlib import Path

from lib_dlhpc.scale_out.work import do, read_work


def main(folder: str, number: str, many: str) -> None:
    """Do the chunks of job `number` of `many`; those with a result are not done again."""
    work = read_work(Path(folder))
    for chunk in range(int(number), work.chunks, int(many)):
        do(work, chunk, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
