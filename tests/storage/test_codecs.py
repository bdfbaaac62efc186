"""Compressed files round-trip, read by any number of threads."""

import sys
import threading

import pytest

from lib_dlhpc.storage.codecs import CODECS, compress, decompress


@pytest.fixture
def often():
    """Threads take turns every 10 us, not every 5 ms."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("codec", range(1, len(CODECS)))
def test_threads_that_read_at_once_all_read_what_was_packed(often, codec):
    """One decompressor for all gave wrong data, errors, or an end of the program, here within a second."""
    texts = [f"thread {number} ".encode() * 50_000 for number in range(4)]
    wrong = []

    def reader(text):
        for _ in range(100):
            small, code = compress(text, codec)
            try:
                if code != codec or decompress(small, code, len(text)) != text:
                    wrong.append(text[:10])
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=reader, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
