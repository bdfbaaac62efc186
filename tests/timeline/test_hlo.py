"""The HLO text of a module has the sizes of its collectives."""

import pytest

from lib_dlhpc.timeline.hlo import collective_sizes, is_collective

TEXT = """\
HloModule jit_step

ENTRY %main (p: f32[8]) -> f32[8] {
  %all-reduce.6 = (f32[128,784]{1,0}, f32[128]{0}, /*index=5*/f32[]) all-reduce(%a, %b, %c), channel_id=1
  reduce-scatter.1 = bf16[10]{0} reduce-scatter(bf16[20]{0} %d), dimensions={0}
  ROOT %all-to-all = s4[3]{0} all-to-all(%e)
  %all-reduce-start.2 = pred[5]{0} all-reduce-start(%g)
  %all-reduce-done.2 = pred[5]{0} all-reduce-done(%all-reduce-start.2)
  %all-gather-start.3 = (f32[2], f32[4]) all-gather-start(%h)
  %broadcast.4 = f32[100]{0} broadcast(%f), dimensions={}
}
"""


def test_the_bytes_of_a_collective_are_those_of_its_shapes():
    assert collective_sizes(TEXT) == {
        "all-reduce.6": 4 * (128 * 784 + 128 + 1),
        "reduce-scatter.1": 20,
        "all-to-all": 2,  # three of 4 bits
        "all-reduce-start.2": 5,
    }


@pytest.mark.parametrize(
    "operation", ["broadcast.3", "broadcast_subtract_fusion", "reduce", "all-reduce-done.2"]
)
def test_what_fills_or_reduces_an_array_is_no_collective(operation):
    assert not is_collective(operation)
