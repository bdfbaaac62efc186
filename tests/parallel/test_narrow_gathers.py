"""What tensor ranks gather for a product in fp8 is cast before it is sent; sums of products stay in 16 bits."""

import pytest
from same_terms import assert_same_terms
from split_runs import GPT, split

from lib_dlhpc.parallel import steps
from lib_dlhpc.program import Collective, prove

SCALED = 1 + 4 / 128  # B an element
WIDE, NARROW = {2.0}, {SCALED}


def bytes_of(**ways):
    """Return B an element and sample of the collectives of tensor ranks, by goal and direction, in the first block."""
    run = split(GPT, **{"tensor": 2, "sequence_parallel": True, "batch": 4} | ways)
    prove(steps(run))
    assert_same_terms(run)
    found = {}
    chunk = steps(run)[0].stages[0][0]
    for way, block in (("forward", chunk.forward), ("backward", chunk.last)):
        for each in block.variants[0].instructions:
            if isinstance(each, Collective) and each.group == "tensor" and each.goal != "allreduce":
                size = block.prices[0].bytes(each) / each.elements / 4
                found.setdefault((way, each.goal), set()).add(size)
    return found


@pytest.mark.parametrize("pieces", [1, 2])
def test_products_in_fp8_gather_fp8_and_sum_in_16_bits(pieces):
    ways = {"tensor_pieces": pieces}
    wide, narrow = (bytes_of(precision=each, **ways) for each in ("bf16", "fp8"))
    assert all(sizes == WIDE for sizes in wide.values())
    assert wide.keys() == narrow.keys()
    for (_, goal), sizes in narrow.items():
        # Logits and the sum of embeddings are in 16 bits: so is what their products gather.
        assert sizes == (WIDE if goal == "reduce_scatter" else WIDE | NARROW)
