"""The heat equation: waves decay as the analysis predicts, initial fields are seeded."""

import numpy as np
import pytest

from lib_dlhpc.spec.workflow import Simulation
from lib_dlhpc.training.coupled.heat import Heat, decay, first_field, modes


def after(simulation, k, m, steps):
    """The amplitude of a wave after some steps."""
    waves = modes(simulation, max(k, m))
    wave = np.outer(waves[:, k - 1], waves[:, m - 1])
    heat = Heat(simulation)
    heat.begin(wave)
    for _ in range(steps):
        heat.step()
    return wave, heat.field


@pytest.mark.parametrize(("k", "m"), [(1, 1), (2, 3), (5, 1), (16, 16)])
@pytest.mark.parametrize("substeps", [1, 3])
def test_each_wave_of_the_grid_keeps_its_shape_and_decays_by_its_own_factor(k, m, substeps):
    simulation = Simulation(grid=16, substeps=substeps, stability=0.7, diffusivity=2.5)
    wave, field = after(simulation, k, m, 10)
    sines = sum(np.sin(number * np.pi * simulation.spacing / 2) ** 2 for number in (k, m))
    factor = 1 - 4 * (0.7 / 4 / substeps) * sines
    assert np.allclose(field, wave * factor ** (10 * substeps), rtol=0, atol=1e-12)


def test_the_error_against_the_equation_itself_falls_with_the_square_of_the_spacing():
    errors = []
    for grid in (7, 15, 31, 63):  # spacings 1/8 to 1/64: the same time takes four times the steps
        simulation = Simulation(grid=grid)
        steps = 4 * (grid + 1) ** 2 // 64
        wave, field = after(simulation, 1, 2, steps)
        errors.append(np.abs(field - wave * decay(simulation, 1, 2, steps)).max())
    ratios = np.divide(errors[:-1], errors[1:])
    assert np.all((ratios > 3.8) & (ratios < 4.3)), ratios


@pytest.mark.parametrize("stability", [0.5, 1.0])
def test_steps_up_to_the_largest_stable_one_are_stable(stability):
    simulation = Simulation(grid=12, stability=stability)
    heat = Heat(simulation)
    heat.begin(first_field(simulation, 0))
    start = np.abs(heat.field).max()
    for _ in range(500):
        heat.step()
    assert np.abs(heat.field).max() < start


def test_heat_never_exceeds_where_it_began():
    simulation = Simulation(grid=10)
    heat = Heat(simulation)
    heat.begin(first_field(simulation, 3))
    for _ in range(20):
        low, high = min(heat.field.min(), 0), max(heat.field.max(), 0)
        heat.step()
        assert low - 1e-15 <= heat.field.min() <= heat.field.max() <= high + 1e-15


def test_initial_fields_depend_on_seed_and_number():
    simulation = Simulation(grid=16)
    one = first_field(simulation, 0)
    assert np.array_equal(one, first_field(simulation, 0))
    assert not np.array_equal(one, first_field(simulation, 1))
    assert not np.array_equal(one, first_field(Simulation(grid=16, seed=1), 0))
    assert one.std() == pytest.approx(1)


@pytest.mark.parametrize("rows", [1, 4, 9])
def test_a_subset_of_rows_can_be_stepped(rows):
    heat = Heat(Simulation(grid=9), rows=rows)
    heat.begin(np.ones((9, 9)))
    heat.step()
    assert heat.field.shape == (rows, 9)
