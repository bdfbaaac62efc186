"""Pages of the explorer look for advice only in tests about it: each move would take tens of predictions."""

from typing import Any

import pytest

from lib_dlhpc.explore.explorer.plan import Plan


@pytest.fixture
def with_advice() -> None:
    """Pages look for advice."""


@pytest.fixture(autouse=True)
def without_advice(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages show that there is no advice, unless a test asks for `with_advice`."""

    def follow(plan: Plan, prediction: Any, answered: tuple[int, int], choice: Any) -> None:
        plan.state = {"words": "", "changes": {}, "answered": [*answered], "stale": False}

    if "with_advice" not in request.fixturenames:
        monkeypatch.setattr(Plan, "follow", follow)
