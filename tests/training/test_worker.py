"""Law of a rank that fails: where it cannot write why, it goes on to end the others."""

from lib_dlhpc.training.worker import _fail


def test_a_rank_that_cannot_write_why_it_failed_says_nothing(tmp_path):
    _fail(tmp_path / "gone", 0, 3, kind="OSError", text="No space left on device")
    assert not list(tmp_path.iterdir())
    _fail(tmp_path, 0, 3, kind="OSError", text="No space left on device")
    assert [path.name for path in tmp_path.iterdir()] == ["error-0.json"]
