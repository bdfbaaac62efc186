"""A real run that does not fit is refused, with what would help; what was held is told beside the cap."""

import pytest

from lib_dlhpc import loads
from lib_dlhpc.predict.on_ranks import check_fits, data_bytes, rank_bytes, told
from lib_dlhpc.spec.errors import SpecError

RUN = loads("""
model = { family = "mlp", widths = [64, 512, 512, 512, 512, 512, 512, 512, 10] }
machine = "laptop"
[dataset]
name = "digits"
samples = 600
[strategy]
devices_per_node = 1
batch = 32
optimizer = "adam"
""")
RESERVED = RUN.machine.device.reserved_memory


def test_a_rank_holds_all_samples_beside_the_ledger():
    assert data_bytes(RUN) == 600 * (64 * 4 + 8)
    more = RUN.set({"dataset.samples": 700})
    assert rank_bytes(more) - rank_bytes(RUN) == pytest.approx(100 * (64 * 4 + 8))


def test_what_does_not_fit_is_refused_with_what_would():
    need = rank_bytes(RUN)
    assert check_fits(RUN.set({"machine.device.memory": need})) == need
    with pytest.raises(SpecError, match=r"more; would fit: .*strategy.offload = 'all'"):
        check_fits(RUN.set({"machine.device.memory": RESERVED + (need - RESERVED) * 0.8}))
    with pytest.raises(SpecError, match="no change that is known would fit"):
        check_fits(RUN.set({"machine.device.memory": RESERVED + 1e4}))


def test_a_peak_above_the_cap_is_told():
    assert len(told(1e6, [1e6, 2e6], 3e6)) == 1
    assert "rank 1 held 1 MB more" in told(1e6, [1e6, 4e6], 3e6)[-1]
    assert told(1e6, [], 3e6) == []
