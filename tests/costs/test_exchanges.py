"""Laws of what a part exchanges and computes: what is borrowed is lent, parts add up to the whole."""

import numpy as np
import pytest

from lib_dlhpc import layout, loads
from lib_dlhpc.costs import roofline
from lib_dlhpc.costs.exchanges import halo_elements, halo_pairs, recomputed
from lib_dlhpc.costs.segments import segments
from lib_dlhpc.parallel import program
from lib_dlhpc.program import work_of

BASE = """
[dataset]
name = "imagenet"
[machine]
name = "summit"
[strategy]
nodes = 1
batch = 8
"""


def parts(model, ranks, **strategy):
    run = loads(f"[model]\n{model}\n{BASE}")
    run = run.set({f"strategy.{name}": value for name, value in strategy.items()})
    return run, [layout.parts(run, rank) for rank in ranks]


@pytest.mark.parametrize("spatial", [2, 3, 6])
@pytest.mark.parametrize("name", ["resnet18", "vgg16", "alexnet", "inception-v3"])
def test_what_ranks_borrow_others_lend(name, spatial):
    _, held = parts(f'name = "{name}"', range(spatial), spatial=spatial)
    halos = [[x for x in part.model.layers if x.kind == "halo"] for (part,) in held]
    assert len({len(each) for each in halos}) == 1 and halos[0]
    for layer in zip(*halos, strict=True):
        counted = [halo_elements(each) for each in layer]
        assert sum(borrowed for borrowed, _ in counted) == sum(lent for _, lent in counted)


def test_a_window_of_three_rows_borrows_one_from_each_neighbor():
    _, held = parts('name = "vgg16"', range(3), spatial=3)
    row = 64 * 224  # of the first layer's output
    layers = [next(x for x in p.model.layers if x.name == "stage1.conv2.halo") for (p,) in held]
    assert [halo_elements(layer) for layer in layers] == [
        (row, row),
        (2 * row, 2 * row),
        (row, row),
    ]


@pytest.mark.parametrize("name", ["vgg16", "inception-v3"])
def test_pairs_of_a_halo_carry_what_ranks_borrow_and_lend(name):
    _, held = parts(f'name = "{name}"', range(3), spatial=3)
    for rank, (part,) in enumerate(held):
        for layer in (each for each in part.model.layers if each.kind == "halo"):
            pairs = halo_pairs(layer, "forward")
            borrowed = sum(size for _, taker, size in pairs if taker == rank)
            lent = sum(size for giver, _, size in pairs if giver == rank)
            assert (borrowed, lent) == halo_elements(layer)
            home = {(b, a, size) for a, b, size in pairs}
            assert set(halo_pairs(layer, "backward")) == home


@pytest.mark.parametrize("name", ["resnet50", "bert-base"])
def test_stages_compute_together_what_the_network_computes(name):
    run, _ = parts(f'name = "{name}"', range(6), pipeline=6, microbatches=2)
    work = work_of(program(run))
    whole = roofline.layer_times(run.model, run.machine.device, 4.0, "fp32")
    assert work.forward.sum() == pytest.approx(2 * whole.forward.sum())
    assert work.backward.sum() == pytest.approx(2 * whole.backward.sum())
    assert not work.recomputation.any()


@pytest.mark.parametrize(
    "recompute", ["none", "light", "selective", "per-op", "early-stop", "full"]
)
def test_what_is_recomputed_is_what_lies_in_segments(recompute):
    run, [(part,)] = parts('name = "bert-base"', [0], recompute=recompute)
    again = recomputed(part.model, recompute)
    inside = sum(len(each.repeated) for each in segments(part.model, recompute))
    assert again.sum() == inside and (inside == 0) == (recompute == "none")
    work, times = (
        work_of(program(run, 2.0)),
        roofline.layer_times(part.model, run.machine.device, run.strategy.batch, "fp32"),
    )
    assert work.recomputation.sum() == pytest.approx(2 * times.forward[again].sum())


def test_twice_the_tensor_ranks_halve_the_products():
    flop = []
    for ranks in (1, 2, 6):
        _, [(part,)] = parts('name = "bert-base"', [0], tensor=ranks)
        flop.append(sum(x.forward_flop for x in part.model.layers if x.name.startswith("layer")))
    assert np.array(flop) * [1, 2, 6] == pytest.approx(flop[0])


def test_messages_that_carry_nothing_cost_no_arithmetic():
    for ranks in (2, 6):
        run, [(part,)] = parts('name = "bert-base"', [0], tensor=ranks)
        times = roofline.layer_times(part.model, run.machine.device, 8, "fp32")
        kinds = np.array([layer.kind for layer in part.model.layers])
        assert not times.forward[np.isin(kinds, ["exchange", "halo", "receive", "table"])].any()
