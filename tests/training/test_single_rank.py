"""One rank: collectives return its own value, and MPI is not imported."""

import subprocess
import sys

import numpy as np

from lib_dlhpc.training.single_rank import SingleRank


def test_collectives_over_one_rank_return_its_value():
    comm = SingleRank()
    assert (comm.rank, comm.size) == (0, 1)
    assert comm.allreduce(3.5) == 3.5
    assert comm.bcast("this") == "this"
    assert comm.gather([1]) == [[1]]
    comm.Barrier()
    received, sent = np.arange(3.0), np.ones(3)
    comm.Bcast(received)
    comm.Allreduce(object(), received)  # in place
    assert np.array_equal(received, [0, 1, 2])
    comm.Allreduce(sent, received)
    assert np.array_equal(received, sent)


def test_a_single_rank_run_imports_no_mpi():
    code = (
        "import sys\n"
        "from lib_dlhpc.training.single_rank import SingleRank\n"
        "from lib_dlhpc.studies.large_batch import DIGITS, Trial, experiment_of\n"
        "from lib_dlhpc.training.trainer import train\n"
        "from dataclasses import replace\n"
        "e = experiment_of(replace(DIGITS, epochs=1), Trial('test', 'lars', 512, 10., 1., 0))\n"
        "train(e, SingleRank())\n"
        "assert 'mpi4py' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
