"""A button of an open section acts on what was chosen, even when it is clicked before the controls rest."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from short_runs import digits

from lib_dlhpc.explore.explorer.page import Explorer
from lib_dlhpc.explore.explorer.section import REST, Section

pytestmark = pytest.mark.usefixtures("own_state")


def here_of(page: Explorer, section: Section):
    """Return what runs the newest experiment of a section."""
    return page.sweep.here if section is page.sweep else page.run.panel


@pytest.mark.parametrize("name", ["run", "sweep"])
def test_what_is_run_here_is_what_was_chosen_last(name):
    started = []

    async def visit() -> None:
        page = Explorer(digits(devices_per_node=2))
        section = getattr(page, name)
        section.opened.value = True
        here = here_of(page, section)
        here.panel.thread = lambda target, daemon: started.append(here.experiment) or Unstarted()
        page.load(digits(devices_per_node=1))
        assert here.experiment.devices == 2  # what is shown waits for the controls to rest
        here.panel.run.click()
        assert [each.devices for each in started] == [1]
        turn = here._turn
        await asyncio.sleep(2 * REST)
        assert here._turn == turn  # the run is still that of the click

    with ThreadPoolExecutor(1) as own:  # browser tests may have left this thread a loop that runs
        own.submit(asyncio.run, visit()).result()


def test_a_plan_is_of_what_was_chosen_last():
    planned = []

    async def visit() -> None:
        page = Explorer(digits(devices_per_node=2))
        page.planned.runner.thread = lambda **_: planned.append(page.planned.newest) or Unstarted()
        page.planned.opened.value = True
        page.planned.runner.cancel.disabled = True
        page.load(digits(devices_per_node=1))
        page.planned.runner.run.click()

    with ThreadPoolExecutor(1) as own:
        own.submit(asyncio.run, visit()).result()
    assert [each.experiment.devices for each in planned] == [2, 1]


class Unstarted:
    """A thread that is never started."""

    def start(self) -> None:
        pass
