"""Tests on ranks are one worker's, and no worker is left alone with slow files at the end."""

import pytest
from lanes import FIRST, LANES, PAGES, ROWS, lane_of, order_of
from turns import ALONE


@pytest.mark.parametrize(
    ("nodeid", "lane"),
    [
        ("tests/mpi/test_x.py::test_a[b::c]", "tests/mpi"),
        ("tests/cluster/test_x.py::test_a", "tests/cluster"),
        ("tests/explore/slides/test_x.py::test_a", "tests/explore/slides"),
        ("tests/explore/test_x.py::test_a", "tests/explore/test_x.py"),
        ("tests/browser/test_x.py::test_a", "tests/browser/test_x.py"),
        ("tests/explore/slides/test_x.py::test_a", "tests/explore/slides"),
        ("tests/explore/test_x.py::test_a", "tests/explore/test_x.py"),
        ("tests/test_api.py::test_a", "tests/test_api.py"),
        ("tests/test_cli.py::test_a", "tests/prediction/validation/test_validate.py"),
        (
            "tests/prediction/validation/test_validate.py::test_a",
            "tests/prediction/validation/test_validate.py",
        ),
        ("modules/01_one_step.ipynb::Cell 3", "modules/01_one_step.ipynb"),
        ("labs/mpi/x.ipynb::Cell 0", "labs/mpi/x.ipynb"),
    ],
)
def test_a_file_is_a_unit_of_work_and_so_is_a_lane(nodeid, lane):
    assert lane_of(nodeid) == lane


def test_tests_on_ranks_begin_and_quick_files_end(repository):
    tests = repository / "tests"
    files = [tests / "mpi/a.py", tests / "launch/a.py", repository / "modules/a.ipynb"]
    files += [tests / "browser/a.py", tests / "spec/a.py"]
    assert [order_of(file, tests) for file in files] == sorted(
        {order_of(file, tests) for file in files}
    )
    assert order_of(tests / "test_cli.py", tests) == order_of(tests / "spec/a.py", tests)


def test_every_folder_that_has_a_place_is_there(repository):
    assert ALONE in LANES
    assert all((repository / "tests" / folder).is_dir() for folder in (*FIRST, *LANES, PAGES))
    assert all((repository / "tests" / file).is_file() for file in ROWS)
