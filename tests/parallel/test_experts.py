"""Laws of the program of a step with experts: where their messages stand, and what of a bucket each group sums."""

import pytest
from split_runs import MOE, split

from lib_dlhpc import parallel
from lib_dlhpc.parallel import step
from lib_dlhpc.program import Collective, Compute, gathers, prove
from lib_dlhpc.program.instructions import summed_layers
from lib_dlhpc.schedules.checks import ProofError

EXPERTS = {"data": 4, "experts": 2}


def passes_of(**strategy):
    program = parallel.program(split(MOE, **EXPERTS, **strategy))
    chunk = program.stages[0][0]
    layers = chunk.forward.prices[0].model.layers
    for phase in ("forward", "backward", "last"):
        yield phase, layers, getattr(chunk, phase).variants[0].instructions


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_positions_go_to_the_experts_before_their_work_and_home_after_it(recompute):
    for phase, layers, instructions in passes_of(recompute=recompute):
        inside = [each for each in instructions if not getattr(each, "stream", "")]
        worked = [
            at
            for at, each in enumerate(inside)
            if isinstance(each, Compute) and layers[each.layer].kind == "experts"
        ]
        again = 2 if recompute == "full" and phase != "forward" else 1
        assert len(worked) == again * MOE["layers"]
        around = [inside[at + side] for at in worked for side in (-1, 1)]
        assert all(isinstance(each, Collective) for each in around)
        assert {each.goal for each in around} == {"all_to_all"}
        assert sum(isinstance(each, Collective) for each in inside) == len(around)


@pytest.mark.parametrize("bucket", [1, 1e5, 1e9])
def test_experts_are_summed_where_they_are_alike_and_all_else_everywhere(bucket):
    """Each bucket's two sums have exactly the parameters of their layers, and together all of them once."""
    run = split(MOE, **EXPERTS, bucket=bucket)
    prove(parallel.steps(run))
    program = parallel.program(run)
    last = program.stages[0][0].last
    layers = last.prices[0].model.layers
    summed = {"data": [], "alike": []}
    for each in last.variants[0].instructions:
        if isinstance(each, Collective) and each.group in summed:
            own = summed_layers(each)
            assert each.elements == sum(layers[at].parameters for at in own)
            summed[each.group] += [at for at in own if layers[at].parameters]
    of_kind = [layer.kind == "experts" for layer in layers]
    assert sorted(summed["alike"]) == [at for at, yes in enumerate(of_kind) if yes]
    weights = [at for at, layer in enumerate(layers) if layer.parameters and not of_kind[at]]
    assert sorted(summed["data"]) == weights


@pytest.mark.parametrize("unit", ["block", "layer"])
def test_weights_of_experts_are_gathered_from_those_that_hold_them(unit):
    """Before each pass all weights arrive once, experts' over replicas with the same ones, all other over all."""
    for _, layers, instructions in passes_of(zero=3, zero_unit=unit):
        found = [each for each in instructions if gathers(each)]
        for group in ("data", "alike"):
            own = [at for each in found if each.group == group for at in summed_layers(each)]
            of_group = [
                at
                for at, layer in enumerate(layers)
                if layer.parameters and (layer.kind == "experts") == (group == "alike")
            ]
            assert sorted(at for at in own if layers[at].parameters) == of_group
        for each in found:
            if each.group == "alike":
                assert each.elements == sum(layers[at].parameters for at in summed_layers(each))


def test_experts_that_compute_before_their_weights_arrive_are_found(monkeypatch):
    def hasty(experiment, held, passes):
        alike = [each for each in passes.forward if gathers(each) and each.group == "alike"]
        late = [each for each in passes.forward if getattr(each, "key", "") == alike[0].key]
        passes.forward.remove(late[-1])
        passes.forward.append(late[-1])

    monkeypatch.setattr(step, "PASSES", (*step.PASSES, hasty))
    with pytest.raises(ProofError, match="computes without its weights"):
        prove(parallel.steps(split(MOE, **EXPERTS, zero=3, bucket=2.7e4)))


@pytest.mark.parametrize(("omits", "times"), [((), 2), (range(1000), 0)])
def test_experts_that_are_summed_twice_or_not_at_all_are_found(monkeypatch, omits, times):
    def mistaken(experiment, held, passes):
        passes.last = [
            each._replace(omits=tuple(omits))
            if isinstance(each, Collective) and each.layers
            else each
            for each in passes.last
        ]

    monkeypatch.setattr(step, "PASSES", (*step.PASSES, mistaken))
    with pytest.raises(ProofError, match=f"{times} times over data and alike"):
        prove(parallel.steps(split(MOE, **EXPERTS, bucket=2.5e4 + times)))


def zero_bubble_chunk(**strategy):
    run = split(MOE, pipeline=2, microbatches=4, schedule="zb-h1", **EXPERTS, **strategy)
    prove(parallel.steps(run))
    return parallel.program(run).stages[0][0]


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_weight_gradients_of_experts_exchange_no_positions(zero):
    """All-to-alls surround the input gradients; weight gradients come later, then what of them is summed."""
    chunk = zero_bubble_chunk(zero=zero)
    layers = chunk.backward.prices[0].model.layers
    experts = {at for at, layer in enumerate(layers) if layer.kind == "experts"}
    back, late, last = (
        list(block.variants[0].instructions)
        for block in (chunk.backward, chunk.weights, chunk.last)
    )
    inside = [each for each in back if not getattr(each, "stream", "")]
    for phase, own in (("input_grad", inside), ("weight_grad", late), ("weight_grad", last)):
        computed = [each for each in own if isinstance(each, Compute) and each.layer in experts]
        assert {each.layer for each in computed} == experts
        assert {each.phase for each in computed} == {phase}
    for at, each in enumerate(inside):
        if isinstance(each, Compute) and each.layer in experts:
            assert [one.goal for one in (inside[at - 1], inside[at + 1])] == ["all_to_all"] * 2
    assert not any(getattr(each, "goal", "") == "all_to_all" for each in (*late, *last))
    sent = [each for each in last if getattr(each, "group", "") in ("alike", "data", "shards")]
    assert any(each.group == "alike" for each in sent)


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (lambda each: each.phase != "weight_grad", "no weight gradients, or has them twice"),
        (lambda each: each.phase != "input_grad", "computes layers"),
    ],
)
def test_experts_that_lose_a_part_of_their_backward_pass_are_found(monkeypatch, mistake, says):
    def lossy(experiment, held, passes):
        layers = passes.part.model.layers
        for name in ("backward", "weights", "last"):
            own = getattr(passes, name)
            kept = [
                each
                for each in own
                if not isinstance(each, Compute)
                or layers[each.layer].kind != "experts"
                or mistake(each)
            ]
            setattr(passes, name, kept)

    monkeypatch.setattr(step, "PASSES", (*step.PASSES, lossy))
    with pytest.raises(ProofError, match=says):
        zero_bubble_chunk(bucket=2.5e4 + len(says))
