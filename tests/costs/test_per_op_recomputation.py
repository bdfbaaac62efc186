"""Laws of recomputation by operator: it costs and frees what a count by hand says, and nothing is missing."""

import pytest
from same_terms import assert_same_terms
from split_runs import MOE, split

from lib_dlhpc.costs.segments import segments
from lib_dlhpc.costs.stored_activations import reads_input, reads_output, stored_bytes
from lib_dlhpc.errors import SpecError
from lib_dlhpc.layout import parts
from lib_dlhpc.parallel import steps
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.changes.no_effect import without_effect
from lib_dlhpc.program import prove
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.training.check import check

S, H, HEADS, WIDE, LAYERS = 32, 64, 4, 96, 3
LLAMA = {
    "family": "llama",
    "layers": LAYERS,
    "hidden": H,
    "heads": HEADS,
    "kv_heads": 2,
    "feed_forward": WIDE,
    "sequence": S,
    "vocabulary": 128,
}
SEQUENTIAL = {"sequence_parallel": True, "tensor": 2}
WAYS = [
    {},
    {"data": 4, "zero": 3},
    {"data": 4, "zero": 3, "context": 2},
    {"tensor": 2},
    SEQUENTIAL,
    {**SEQUENTIAL, "tensor_pieces": 2, "pipeline": 2, "microbatches": 4},
    {"pipeline": 2, "microbatches": 4, "schedule": "zb-h1"},
    {"precision": "fp8"},
]


def run_of(model=LLAMA, **ways):
    usual = {"batch": 16, "recompute": "per-op", "precision": "bf16", "fused_attention": "on"}
    return split(model, **(usual | ways))


def test_every_second_matmul_of_a_block_is_repeated():
    """Of five the output projection and the second of the gated network; fused attention is stored."""
    model = parts(run_of(), 0)[0].model
    again = [model.layers[at] for each in segments(model, "per-op") for at in each.repeated]
    assert sum(x.forward_flop for x in again) == LAYERS * 2 * S * (H * H + H * WIDE)
    assert not {"fused_attention", "embedding"} & {x.kind for x in again}


@pytest.mark.parametrize("size", [2, 4])
def test_bytes_freed_are_those_of_the_repeated_outputs(size):
    """Of each block two norms, the sum between them, and two outputs of the gated network."""
    part = parts(run_of(), 0)[0]
    freed = stored_bytes(part, size, "none") - stored_bytes(part, size, "per-op")
    assert freed == S * size * LAYERS * (3 * H + 2 * WIDE)


def test_a_sum_of_sequence_shards_is_stored_and_its_matmul_is_not_repeated():
    model = parts(run_of(**SEQUENTIAL), 0)[0].model
    again = [model.layers[at] for each in segments(model, "per-op") for at in each.repeated]
    assert sum(x.forward_flop for x in again) == LAYERS * 2 * S * H * WIDE / 2
    sent = [x.attributes["forward"] for x in again if x.kind == "exchange"]
    assert sent and set(sent) == {"all_gather"}


@pytest.mark.parametrize("name", catalog.names("models"))
def test_what_backward_reads_is_stored_or_repeated(name):
    """Within a block nothing that is repeated reads what is neither, and nothing is repeated that nobody reads."""
    layers = read_model(name).layers
    for segment in segments(read_model(name), "per-op"):
        inside = range(segment.first, segment.stop)
        again = set(segment.repeated)
        readers = {at: [r for r in inside if layers[at].name in layers[r].inputs] for at in again}
        for at, reads in readers.items():
            assert reads_output(layers[at]) or any(
                each in again or reads_input(layers[each]) for each in reads
            )
        matmuls = [x for x in inside if layers[x].kind in ("dense", "conv")]
        assert not again & set(matmuls[::2])


@pytest.mark.parametrize("ways", WAYS, ids=str)
def test_predicted_is_what_is_played_and_the_program_trains(ways):
    run = run_of(**ways)
    prove(steps(run))
    predicted, _ = assert_same_terms(run)
    assert float(predicted.recomputation) > 0


def test_it_is_between_light_and_full():
    light, per_op, full = (predict(run_of(recompute=each)) for each in ("light", "per-op", "full"))
    assert light.recomputation < per_op.recomputation < full.recomputation
    held = [float(each.memory["activations"]) for each in (light, per_op, full)]
    assert held == sorted(held, reverse=True) and len(set(held)) == 3


def test_it_is_not_run():
    with pytest.raises(SpecError, match="'per-op': it is predicted and simulated, not run"):
        check(split(MOE, recompute="per-op", batch=16))


def test_a_network_without_blocks_says_that_it_has_no_effect():
    run = split({"family": "mlp", "widths": [8, 8, 8]}, recompute="per-op", batch=16)
    (note,) = without_effect(run)
    assert "not made of blocks" in note
    assert float(predict(run).recomputation) == 0
