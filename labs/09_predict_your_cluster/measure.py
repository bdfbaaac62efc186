"""Messages between two ranks and products on both, timed again and again: mpiexec -n 2 python measure.py FILE 10."""

import sys
from pathlib import Path

from lib_dlhpc.calibrate.worker import main

if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
