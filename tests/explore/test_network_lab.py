"""The panel of the network laboratory: alive without one, and what it says of a measurement is what was measured."""

import pytest
from experiment_page import Now, fills

from lib_dlhpc.explore.labs import network_lab
from lib_dlhpc.explore.labs.network_lab import DELAYS, RATES, sizes, state, words
from lib_dlhpc.launch.network import NetworkError
from lib_dlhpc.launch.network.crossover import ALGORITHMS, SIZES, by_ping_pong, predicted
from lib_dlhpc.launch.network.model import Messages

TRUE = Messages(1.2e-3, 8.2e-8, 1.1e-3, 128, 1.1e-3, 2e-11)
POINTS = [
    {"size": n, "one_way": one, "exchange": one + (TRUE.acknowledgement if n > TRUE.short else 0.0)}
    for n in (8, 64, 128, 256, 1024, 4096, 16_384, 65_536, 262_144)
    for one in [(TRUE.alpha if n > TRUE.short else TRUE.short_alpha) + TRUE.beta * n]
]


def result(slower=1.0):
    rows = [
        {"algorithm": name, "size": size, "calls": 3, "right": True, "measured": slower * seconds}
        for name in ALGORITHMS
        for size, seconds in zip(SIZES, by_ping_pong(name, 4, SIZES, TRUE), strict=True)
    ]
    told = {"ranks": 4, "points": POINTS, "gamma": TRUE.gamma, "rows": rows}
    return predicted(told, 12.5e6, 1e-3)


def parts(panel):
    side, main = panel.children
    return side.children[:2], *main.children[:-1]  # the last is what to look for


def test_a_state_fills_every_dataset_and_field_of_the_drawing():
    fills("slow_network", state(12.5e6, 1e-3, result()))


def test_what_is_measured_is_reported():
    asked = []

    def measured(*arguments):
        asked.append(arguments)
        return result()

    panel = network_lab.network_lab(measured, lambda: "", Now)
    _, button, said, figure = parts(panel)
    assert "Not measured yet" in said.value and not button.disabled
    button.click()
    assert asked == [(4, 12.5e6, 1e-3, ALGORITHMS, list(SIZES))]
    assert not button.disabled
    assert "worst 0%" in said.value and "Crossing" in said.value and "ring" in said.value
    assert len(figure.data["points"]["size"]) == len(SIZES) * len(ALGORITHMS)


def test_every_control_moves_the_lines_and_forgets_what_was_measured_elsewhere():
    panel = network_lab.network_lab(lambda *_: result(), lambda: "", Now)
    controls, button, said, figure = parts(panel)
    for control in controls:
        button.click()
        before = figure.data["lines"]["seconds"]
        control.index = 0
        assert figure.data["lines"]["seconds"] != before
        assert figure.data["points"] == {}
        assert "Not measured yet" in said.value


def test_a_measurement_of_another_network_is_not_shown():
    def measured(*_):
        panel.children[0].children[0].index = 0  # somebody moves a slider meanwhile
        return result()

    panel = network_lab.network_lab(measured, lambda: "", Now)
    _, button, said, figure = parts(panel)
    button.click()
    assert "once more" in said.value and figure.data["points"] == {}


def test_without_a_laboratory_the_panel_says_why_and_the_lines_stay():
    panel = network_lab.network_lab(reason=lambda: "It needs <Linux>.")
    controls, button, said, figure = parts(panel)
    assert button.disabled and "It needs &lt;Linux&gt;." in said.value
    before = figure.data["lines"]["seconds"]
    controls[0].index = 0
    assert figure.data["lines"]["seconds"] != before and button.disabled


def test_ranks_that_do_not_come_through_are_reported():
    def measured(*_):
        raise NetworkError("The ranks did not finish in 300 s.")

    _, button, said, _ = parts(network_lab.network_lab(measured, lambda: "", Now))
    button.click()
    assert "did not finish" in said.value and not button.disabled


def test_the_error_told_is_the_error_made():
    assert "off by 50% (median; worst 50%)" in words(result(slower=2.0))


@pytest.mark.parametrize("rate", RATES)
def test_sizes_are_legal_and_none_takes_too_long(rate):
    chosen = sizes(rate / 8)
    assert chosen and set(chosen) <= set(SIZES)
    textbook = state(rate / 8, max(DELAYS), None)[0]["lines"]
    assert (
        max(
            s for n, s in zip(textbook["size"], textbook["seconds"], strict=True) if n <= chosen[-1]
        )
        < 2.0
    )
