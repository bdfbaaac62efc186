"""What a stage holds in PyTorch's pipelines, counted by hand, beside what it holds in Megatron-LM's."""

import pytest

from lib_dlhpc import SpecError
from lib_dlhpc.prediction.memory.rank_memory import moments
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.check import check

MESSAGE = 8 * 128 * 512 * 2  # B of a microbatch between stages
LOGITS = 8 * 128 * 512 * 2
GPT = {"family": "gpt", "layers": 8, "hidden": 512, "heads": 8, "sequence": 128, "vocabulary": 512}
PIPE = {"nodes": 1, "pipeline": 4, "batch": 64, "microbatches": 8}
RUN = Experiment(
    model=GPT,
    machine="selene",
    strategy={**PIPE, "precision": "bf16", "optimizer": "adam", "recompute": "full"},
)


def held(run, runtime):
    """Return the terms of each rank in the backward pass where it holds most."""
    found = moments(run.set({"strategy.pipeline_runtime": runtime}))
    return [each.terms for each in found if "backward" in each.when]


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_messages_of_all_microbatches_are_kept(schedule):
    """A buffer for the input of each and one for gradients, outputs, gradients of inputs; of the last stage the logits.

    Inputs in flight, and the logits of one, are among activations.
    """
    run = RUN.set({"strategy.schedule": schedule})
    for rank, (theirs, own) in enumerate(
        zip(held(run, "pytorch"), held(run, "megatron"), strict=True)
    ):
        flight = 8 if schedule == "gpipe" else 4 - rank
        inputs = 2 * (8 - flight) * (rank > 0)
        outputs = 2 * 8 * (rank < 3)
        logits = 7 * (rank == 3) * (schedule == "1f1b")
        kept = (inputs + outputs) * MESSAGE + logits * LOGITS
        assert theirs["communication buffer"] - own["communication buffer"] == pytest.approx(
            kept - _freed(rank, schedule)
        )
        same = theirs.keys() - {"communication buffer"}
        assert {name: theirs[name] for name in same} == {name: own[name] for name in same}


def _freed(rank, schedule):
    """Return the B of messages that Megatron-LM holds at once."""
    last = 1 if schedule == "gpipe" else 3
    return ((2 if rank < 3 else last) * (rank > 0) + 3 * (rank < 3)) * MESSAGE


def test_fsdp_has_shards_of_gradients_and_two_gathered_units_in_other_streams():
    """And all gradients of a block at once, before they are added in 32 bits."""
    ways = {"nodes": 2, "data": 4, "zero": 1, "gather": "forward", "wire": "fp32"}
    run = RUN.set({f"strategy.{name}": each for name, each in ways.items()})
    theirs, own = held(run, "pytorch")[1], held(run, "megatron")[1]
    block = 12 * 512**2 + 13 * 512
    kept = (2 * (8 - 3) + 2 * 8) * MESSAGE
    assert theirs["communication buffer"] == pytest.approx(kept + 4 * 2 * block / 4 + 2 * 2 * block)
    largest = 4 * 512**2 + 4 * 512
    grown = theirs["working set"] - own["working set"]
    assert grown == pytest.approx(2 * (block - largest))


def test_interleaved_stages_have_gradients_one_after_the_other():
    """With as many microbatches as ranks the second stage of each is done before the first begins."""
    ways = {"schedule": "interleaved", "chunks": 2, "microbatches": 4, "batch": 32, "zero": 1}
    run = RUN.set({f"strategy.{name}": each for name, each in ways.items()})
    for rank, (theirs, own) in enumerate(
        zip(held(run, "pytorch"), held(run, "megatron"), strict=True)
    ):
        half = 2 * (12 * 512**2 + 13 * 512)
        if 0 < rank < 3:
            assert own["gradients"] - theirs["gradients"] == pytest.approx(half)
        assert theirs["gradients"] < own["gradients"]
    more = run.set({"strategy.microbatches": 8, "strategy.batch": 64})
    pairs = zip(held(more, "pytorch"), held(more, "megatron"), strict=True)
    assert all(theirs["gradients"] == own["gradients"] for theirs, own in pairs)


def test_gradients_that_nothing_shards_stay_until_the_update():
    """Only FSDP replaces those of a stage by shards after its last backward pass; an optimizer reads all of them."""
    ways = {"schedule": "interleaved", "chunks": 2, "microbatches": 4, "batch": 32}
    run = RUN.set({f"strategy.{name}": each for name, each in ways.items()})
    theirs, own = (
        [each.terms["gradients"] for each in moments(run.set({"strategy.pipeline_runtime": way}))]
        for way in ("pytorch", "megatron")
    )
    assert theirs == own


def test_pytorchs_pipelines_are_not_run_and_have_no_dualpipe():
    with pytest.raises(SpecError, match="'pytorch': it is predicted and simulated, not run"):
        check(RUN.set({"strategy.pipeline_runtime": "pytorch", "strategy.precision": "fp32"}))
    both = {"strategy.pipeline_runtime": "pytorch", "strategy.schedule": "dualpipe"}
    with pytest.raises(SpecError, match="legal is 'megatron'"):
        RUN.set(both)
