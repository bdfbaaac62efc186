"""Fresh bytes are plain bytes once they are filled, and stay as long as anybody may still fill them."""

import gc

import pytest

from lib_dlhpc.storage.fresh import fresh


@pytest.mark.parametrize("size", [2, 3, 4096, 1_000_003, 8_000_000])
def test_what_is_written_is_what_they_are(size):
    wanted = bytes(range(256)) * (size // 256 + 1)
    data, view = fresh(size)
    view[:] = wanted[:size]
    view.release()
    assert type(data) is bytes and data == wanted[:size] and hash(data) == hash(wanted[:size])


def test_the_view_keeps_them():
    data, view = fresh(100_000)
    piece = view[10:20]
    address = id(data)
    del data, view
    gc.collect(1)  # they are young: the whole heap of a test process takes seconds
    others = [bytes([1]) * 100_000 for _ in range(20)]
    assert address not in map(id, others)
    piece[:] = b"0123456789"
    assert bytes(piece) == b"0123456789" and all(other == bytes([1]) * 100_000 for other in others)


@pytest.mark.parametrize("size", [0, 1])
def test_shared_ones_are_refused(size):
    with pytest.raises(ValueError, match="shares"):
        fresh(size)
