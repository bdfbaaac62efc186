"""A link shows a figure as its controls stand, and an address that is not understood is answered."""

from typing import Annotated, Any, NamedTuple

import pytest
from experiment_page import controls

from lib_dlhpc.explore.blocks.address import Share, decode
from lib_dlhpc.explore.blocks.bench import Bench, Dropdown, Slider, View, gigabits


class Run(NamedTuple):
    """Two settings with controls."""

    gpus: Annotated[int, Slider("GPUs", "How many", (8, 64, 1024))] = 64
    link: Annotated[float, Dropdown("Link", "Between nodes", (1e9 / 8, 1e11 / 8), gigabits)] = (
        1e11 / 8
    )


def bench() -> tuple[Any, Share]:
    page = Bench(Run(), lambda run: View(str(run.gpus)), [])
    (share,) = (each for each in page.children[0].children if isinstance(each, Share))
    return page, share


def test_the_link_has_what_is_off_its_first_value_and_nothing_else():
    page, share = bench()
    assert share.link == "v1&figure=test_share"
    controls(page)["GPUs"].value = 1024
    controls(page)["Link"].value = 1e9 / 8
    assert decode(share.link).fields == {"figure": "test_share", "gpus": "1,024", "link": "1 Gb/s"}
    controls(page)["Link"].value = 1e11 / 8
    controls(page)["GPUs"].value = 8
    assert share.link == "v1&figure=test_share&gpus=8"


@pytest.mark.parametrize("gpus", Run.__annotations__["gpus"].__metadata__[0].values)
@pytest.mark.parametrize("link", [1e9 / 8, 1e11 / 8])
def test_a_link_restores_each_setting_from_any_other(gpus, link):
    sender, share = bench()
    controls(sender)["GPUs"].value, controls(sender)["Link"].value = gpus, link
    for before in (8, 1024):
        receiver, arrives = bench()
        controls(receiver)["GPUs"].value = before
        arrives.arrived = share.link
        assert receiver.setting == Run(gpus, link)
        assert arrives.said == "" and arrives.link == share.link


@pytest.mark.parametrize(
    ("fragment", "named"),
    [
        ("v1&figure=test_share&gpus=7", "gpus = 7"),
        ("v1&figure=test_share&nobody=7", "nobody = 7"),
        ("v9&figure=test_share&gpus=8", "v9"),
        ("v1&figure=test_share&gpus=[8]", "gpus = [8]"),
    ],
)
def test_what_is_not_understood_is_named_and_changes_nothing(fragment, named):
    page, share = bench()
    share.arrived = fragment
    assert page.setting == Run() and named in share.said
