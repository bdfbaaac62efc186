"""A rank that fails: if it cannot write the reason, it still aborts the others."""

from lib_dlhpc.training.worker import record_failure


def test_a_rank_that_cannot_write_its_error_raises_nothing(tmp_path):
    record_failure(tmp_path / "gone", 0, 3, kind="OSError", text="No space left on device")
    assert not list(tmp_path.iterdir())
    record_failure(tmp_path, 0, 3, kind="OSError", text="No space left on device")
    assert [path.name for path in tmp_path.iterdir()] == ["error-0.json"]
