"""Published measurements are predicted within the band that is stated for them."""

from pathlib import Path

import numpy as np
import pytest

from lib_dlhpc.serving.published import BAND, published

ROWS = published()
GUIDE = Path(__file__).parents[2] / "docs/guide/serve.md"


@pytest.mark.parametrize("row", [row for row in ROWS if row.scored], ids=lambda row: row.name)
def test_a_scored_row_is_in_its_band(row):
    assert 1 / (1 + BAND) <= row.predicted / row.published <= 1 + BAND


def test_the_median_error_is_the_one_that_the_guide_states():
    errors = [abs(row.error) for row in ROWS if row.scored]
    assert len(errors) == 49
    stated = f"the median error is {np.median(errors):.0%}, the largest {max(errors):.0%}"
    for page in (GUIDE, GUIDE.with_name("trust.md")):
        text = " ".join(page.read_text(encoding="utf-8").split())
        assert stated in text and "nearly all predictions are too fast" in text, page.name


def test_rows_name_their_source_and_why_they_are_not_scored():
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(row.source and (row.scored or row.notes) for row in ROWS)


def test_a_row_is_printed_in_one_line():
    for row in ROWS:
        assert row.name in repr(row) and f"{row.published:g}" in repr(row)
        assert "\n" not in repr(row) and len(repr(row)) < 140
        assert len(repr(row.service)) < 500
