"""One BLAS thread inside; the previous number outside, also after an error."""

import pytest

from lib_dlhpc.training.threads import one_thread, openblas


def test_the_number_of_threads_is_one_inside_and_restored(require):
    found = openblas()
    require(found, "numpy's products are not OpenBLAS's here")
    count, put = found
    before = count()
    put(2)
    with one_thread():
        assert count() == 1
    assert count() == 2
    with pytest.raises(KeyError), one_thread():
        raise KeyError
    assert count() == 2
    put(before)


def test_without_openblas_nothing_changes(monkeypatch):
    monkeypatch.setattr("lib_dlhpc.training.threads.openblas", lambda: None)
    with one_thread():
        pass
