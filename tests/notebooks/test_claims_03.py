"""What module 03 says is what the library computes."""

from pathlib import Path

from module_text import has_every_part

from lib_dlhpc.explore.allreduce.sizes import Flat, winners


def test_the_crossover_moves_as_the_answer_says() -> None:
    def first(latency: float, rate: float, reduction: float) -> float:
        found = winners(Flat(32, latency, rate / 8, reduction, 1e3).network)[0]
        assert found.algorithm == "recursive_doubling"
        return found.stop

    then, network, both = first(10e-6, 2e9, 1e9), first(1e-6, 400e9, 1e9), first(1e-6, 400e9, 1e12)
    assert network < then < both


def test_long_messages_go_to_the_torus_and_on_a_prime_number_of_ranks_to_the_ring() -> None:
    for ranks, algorithm in ((48, "torus_2d"), (31, "ring")):
        network = Flat(ranks, 10e-6, 2e9 / 8, 1e9, 1e3).network
        assert winners(network)[-1].algorithm == algorithm


def test_every_part_of_a_module_is_there_and_no_cell_is_long(repository: Path) -> None:
    has_every_part(repository / "modules" / "03_allreduce.ipynb", 5, 4)
