"""Tensor-parallel ranks send each position to the next stage once, and the next stage has all of them again."""

import pytest

from lib_dlhpc import layout
from lib_dlhpc.spec.experiment import Experiment

GPT = {"family": "gpt", "layers": 3, "hidden": 24, "heads": 6, "sequence": 11, "vocabulary": 50}
WAYS = [(2, 2), (3, 3), (4, 2), (2, 3)]  # tensor, pipeline


def split(model, **strategy):
    devices = strategy["tensor"] * strategy["pipeline"]
    strategy = {"batch": 12, "nodes": devices, "devices_per_node": 1} | strategy
    machine = {"name": "h100-pod"}
    return Experiment(model=model, dataset="webtext", machine=machine, strategy=strategy)


def replica(run):
    """The parts of all ranks, by stage and place in the tensor group."""
    size = layout.sizes(run)
    return {
        (p, t): layout.parts(run, layout.rank_at(run, layout.Place(p, 0, 0, t)))
        for p in range(size.pipeline)
        for t in range(size.tensor)
    }


@pytest.mark.parametrize(("tensor", "pipeline"), WAYS)
def test_each_position_is_sent_once_and_arrives(tensor, pipeline):
    held = replica(split(GPT, tensor=tensor, pipeline=pipeline, microbatches=pipeline))
    for stage in range(pipeline - 1):
        sent = []
        for rank in range(tensor):
            (here,), (there,) = (held[place, rank] for place in (stage, stage + 1))
            assert here.sends == there.receives
            for name in here.sends:
                (last,), (first,) = (
                    [layer for layer in part.model.layers if layer.name == name]
                    for part in (here, there)
                )
                assert last.output_shape == first.output_shape
                cuts = last.attributes["cuts"]
                sent += range(cuts[rank], cuts[rank + 1])
                assert len(range(cuts[rank], cuts[rank + 1])) == last.output_shape[0]
        assert sorted(sent) == list(range(GPT["sequence"]))


@pytest.mark.parametrize("tensor", [2, 3, 4])
def test_a_group_sends_one_copy_however_many_ranks_it_has(tensor):
    held = replica(split(GPT, tensor=tensor, pipeline=2, microbatches=2))
    sent = [held[0, rank][0].elements(held[0, rank][0].sends) for rank in range(tensor)]
    assert sum(sent) == GPT["sequence"] * GPT["hidden"]


def test_ranks_with_their_own_positions_send_these_as_they_are():
    way = {"tensor": 2, "pipeline": 2, "microbatches": 2}
    whole, own = (replica(split(GPT, **way, sequence_parallel=each)) for each in (False, True))
    for place, (part,) in own.items():
        assert not any(name.startswith("part of") for name in part.sends)
        assert part.elements(part.sends) == whole[place][0].elements(whole[place][0].sends)


def test_outputs_with_fewer_positions_than_ranks_are_sent_whole():
    run = split({**GPT, "sequence": 2}, tensor=3, pipeline=2, microbatches=2)
    first, _ = (layout.parts(run, layout.rank_at(run, layout.Place(p, 0, 0, 0))) for p in range(2))
    assert first[0].elements(first[0].sends) == 2 * GPT["hidden"]
