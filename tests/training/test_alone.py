"""One rank: what all ranks have is what it has, and no MPI is imported for it."""

import subprocess
import sys

import numpy as np

from lib_dlhpc.training.alone import Alone


def test_everything_over_one_rank_is_what_it_has():
    comm = Alone()
    assert (comm.rank, comm.size) == (0, 1)
    assert comm.allreduce(3.5) == 3.5
    assert comm.bcast("this") == "this"
    assert comm.gather([1]) == [[1]]
    comm.Barrier()
    kept, sent = np.arange(3.0), np.ones(3)
    comm.Bcast(kept)
    comm.Allreduce(object(), kept)  # in place
    assert np.array_equal(kept, [0, 1, 2])
    comm.Allreduce(sent, kept)
    assert np.array_equal(kept, sent)


def test_a_run_alone_imports_no_mpi():
    code = (
        "import sys\n"
        "from lib_dlhpc.training.alone import Alone\n"
        "from lib_dlhpc.training.large_batch import DIGITS, Trial, experiment_of\n"
        "from lib_dlhpc.training.trainer import train\n"
        "from dataclasses import replace\n"
        "e = experiment_of(replace(DIGITS, epochs=1), Trial('test', 'lars', 512, 10., 1., 0))\n"
        "train(e, Alone())\n"
        "assert 'mpi4py' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
