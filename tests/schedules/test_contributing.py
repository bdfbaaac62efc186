"""The allreduce that CONTRIBUTING.md shows is one, and all uses take it."""

import re

import pytest

from lib_dlhpc.costs.network import flat
from lib_dlhpc.schedules import price, prove, schedule
from lib_dlhpc.simulation.rounds import finish_times


@pytest.fixture
def star(repository):
    text = (repository / "CONTRIBUTING.md").read_text()
    example, *_ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = {}
    exec(example, names)
    return names["STAR"]


def test_it_is_the_one_that_is_driven_through_every_command_and_page(repository):
    text = (repository / "CONTRIBUTING.md").read_text()
    example, *_ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    helper = (repository / "tests" / "helpers" / "star.py").read_text()
    *_, code = re.split(r"(?=^def star\()", example, maxsplit=1, flags=re.MULTILINE)
    assert code.strip() in helper


@pytest.mark.parametrize("p", [1, 2, 5, 8, 17])
@pytest.mark.parametrize("n", [0, 1, 100])
def test_the_example_is_proved_and_its_price_is_the_stars(star, p, n):
    ours = schedule(star.rounds, p, n)
    prove(ours)
    rounds = 2 * (p - 1)
    cost = price(ours, 1.0, 1.0, 1.0, itemsize=1)
    assert tuple(cost) == (rounds, rounds * n, (p - 1) * n)
    assert tuple(star.priced(n, flat(p, 1.0, 1.0, 1.0))) == tuple(cost)
    last = finish_times(ours, flat(p, 1e-6, 1e-10, 1e-11)).max()
    assert last == pytest.approx(price(ours, 1e-6, 1e-10, 1e-11).total, rel=1e-12)
