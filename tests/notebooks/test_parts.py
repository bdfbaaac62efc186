"""Every module has all parts of a lesson, and no long cell."""

import pytest
from module_text import has_every_part

COUNTS = {  # guesses and checks
    "01_one_step": (6, 5),
    "02_data_parallel": (7, 4),
    "03_allreduce": (5, 4),
    "04_model_parallel": (4, 5),
    "05_hybrid_parallel": (5, 6),
    "06_large_batch_lars": (4, 4),
    "07_io_bottlenecks": (6, 4),
    "08_memory_and_out_of_core": (5, 4),
    "09_state_and_failures": (6, 8),
    "10_energy_and_planning": (6, 7),
    "11_traces_and_waits": (5, 5),
    "12_train_a_language_model": (6, 5),
    "13_serving": (9, 4),
}
MORE = {"06_large_batch_lars": ("training.sparsity", "loss_scale")}


@pytest.mark.parametrize("module", COUNTS)
def test_every_part_is_there_and_no_cell_is_long(module, repository):
    notebook = repository / "modules" / f"{module}.ipynb"
    has_every_part(notebook, *COUNTS[module], *MORE.get(module, ()))
