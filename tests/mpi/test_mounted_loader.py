"""A loader written for a folder runs on a store that ranks hold together: same bytes, same order, on every rank."""

from pathlib import Path

import numpy as np
import pytest

from lib_dlhpc.storage.pack import pack

WORKER = Path(__file__).with_name("mounted_loader_worker.py")


@pytest.mark.parametrize("ranks", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_an_unmodified_loader_on_ranks(run_ranks, ranks, tmp_path):
    random = np.random.default_rng(3)
    for group in ("cats", "dogs/big ones", "Öffnung"):
        (tmp_path / "folder" / group).mkdir(parents=True)
        for number in range(14):
            path = tmp_path / "folder" / group / f"{number} ü"
            if number % 3:
                path.write_bytes(random.bytes(int(random.integers(0, 40_000))))
            else:
                np.save(path.with_suffix(".npy"), random.random((3, number)))
    (tmp_path / "folder" / "empty").touch()
    pack(tmp_path / "folder", tmp_path / "data.store", partitions=4, codec="zstd")
    folder, target = str(tmp_path / "folder"), str(tmp_path / "data.store")
    assert "all right" in run_ranks(ranks, WORKER, folder, target)
