"""What module 11 and its notes say is what the library computes."""

import re

import numpy as np
import pytest

from lib_dlhpc.explore.traces.coupled import Setting as Coupled
from lib_dlhpc.explore.traces.coupled import best, named, number_of, times_faster, ways
from lib_dlhpc.explore.traces.coupled_here import Setting as Workflow
from lib_dlhpc.explore.traces.coupled_here import waiting_share
from lib_dlhpc.explore.traces.here import Setting as Planted
from lib_dlhpc.explore.traces.here import longer_if_late
from lib_dlhpc.explore.traces.puzzle import PUZZLES, puzzle
from lib_dlhpc.explore.traces.waits import (
    IN_TURN,
    NOBODY,
    Setting,
    analyzed,
    gain_of_ideal_network,
    network_wall,
)
from lib_dlhpc.prediction.communication.coupled import waits


def kinds(setting: Setting) -> set[str]:
    return {one.kind for one in analyzed(setting).findings}


def test_a_run_takes_half_as_long_again_and_three_ranks_spend_a_third_of_it_in_mpi():
    late, alike = analyzed(Setting()), analyzed(Setting(NOBODY))
    assert late.span / alike.span == pytest.approx(1.5, abs=0.1)
    shares = late.exposed / late.span
    assert (shares[[0, 1, 3]] == pytest.approx(1 / 3, abs=0.02)) and shares[2] < 0.03


def test_an_ideal_network_saves_two_percent_and_load_imbalance_is_what_limits():
    assert gain_of_ideal_network(Setting()) == pytest.approx(2, abs=0.3)
    assert analyzed(Setting()).findings[0].kind == "load imbalance"
    assert analyzed(Setting()).efficiency.load_balance == pytest.approx(0.75, abs=0.01)
    spans = [analyzed(Setting(network=rate)).span for rate in (1e9, 10e9, 100e9)]
    assert spans[0] > spans[1] > spans[2] > 0.95 * spans[1]


def test_who_sends_late_waits_longest_of_all_though_all_do_the_same_work():
    found = analyzed(Setting(how="sends late"))
    assert found.efficiency.load_balance > 0.99 and found.efficiency.parallel < 0.75
    assert int(np.argmax(sum(found.waits.values()))) == 2
    assert found.findings[0].kind == "late sender" and found.findings[0].rank == 2
    assert found.span > 1.25 * analyzed(Setting()).span


def test_in_turn_nothing_is_gained_and_nobody_is_blamed():
    found = analyzed(Setting(IN_TURN))
    assert found.span == pytest.approx(analyzed(Setting()).span, rel=0.03)
    assert found.efficiency.load_balance > 0.99 and not found.findings
    assert 1 - found.efficiency.parallel == pytest.approx(0.3, abs=0.02)


def test_a_link_with_a_quarter_of_the_bandwidth_is_the_bottleneck_and_the_others_wait_at_the_allreduce():
    setting = Setting(NOBODY, size=4e6, share=0.25)
    found = analyzed(setting)
    assert "The network is the bottleneck" in network_wall(setting, found)
    assert found.findings[0].kind == "slow link"
    late = found.waits["wait at collective"]
    assert late[[0, 3]].min() > 10 * late[[1, 2]].min()


def test_one_of_eight_that_simulates_lets_the_others_wait_and_no_buffer_helps():
    assert times_faster(Coupled()) == pytest.approx(2.1, abs=0.1)
    seconds = [{named(w): w.seconds for w in ways(Coupled(depth=d))}["1 + 7"] for d in (1, 8)]
    assert seconds[0] == pytest.approx(seconds[1], rel=0.01)
    assert named(best(Coupled())) == "5 + 3"


def test_a_sample_of_one_step_wants_few_ranks_to_simulate_and_one_of_sixteen_most():
    few, many = (best(Coupled(sampling=n)) for n in (1, 16))
    assert number_of(few) <= 4 and number_of(many) == 7
    for sampling, most in ((1, 1.05), (16, 1.15)):
        shared = ways(Coupled(sampling=sampling))[0]
        assert named(shared) == "all, in turn"
        assert shared.seconds / best(Coupled(sampling=sampling)).seconds < most


def test_a_buffer_helps_where_both_sides_take_as_long_and_vary():
    ahead = [next(w for w in ways(Coupled(6, 4, d, 0.3)) if number_of(w) == 6) for d in (1, 8)]
    assert ahead[0].produce == pytest.approx(ahead[0].consume, rel=0.05)
    assert ahead[1].seconds < 0.98 * ahead[0].seconds
    spread, p, depth = 0.1, 1.0, 4
    assert waits(p, p, spread, depth)[0] == pytest.approx(spread**2 / (2 * depth * p), rel=0.05)


def waits_of(depth: int, sigma: float, batches: int = 100_000) -> np.ndarray:
    """What each side waits a batch, step by step: both take 1 s on the mean, and vary by sigma each."""
    draw = np.random.default_rng(0)
    make, train = draw.normal(1.0, sigma, (2, batches)).tolist()
    taken = [0.0] * batches
    made = trained = for_samples = for_room = 0.0
    for i in range(batches):
        made += make[i]
        room = taken[i - depth] if i >= depth else 0.0  # a place is free once a batch is taken out
        for_room, made = for_room + max(room - made, 0.0), max(made, room)
        for_samples, taken[i] = for_samples + max(made - trained, 0.0), max(made, trained)
        trained = taken[i] + train[i]
    return np.array([for_samples, for_room]) / batches


@pytest.mark.parametrize(("depth", "sigma"), [(2, 0.05), (4, 0.1), (8, 0.1)])
def test_where_both_sides_vary_by_s_each_waits_s_squared_over_d_p(depth, sigma):
    """The formula of the text, p = c = 1 s, compared with a run, and with the library's."""
    expected = sigma**2 / depth
    assert waits_of(depth, sigma) == pytest.approx([expected, expected], rel=0.1)
    assert waits(1.0, 1.0, 2**0.5 * sigma, depth)[0] == pytest.approx(expected, rel=0.1)


def test_sending_late_costs_800_ms_and_the_training_rank_waits_78_percent():
    assert longer_if_late(Planted(how="sends late")) == pytest.approx(0.8)
    assert waiting_share(Workflow()) == pytest.approx(78, abs=1)


def test_the_answers_of_the_checks():
    assert kinds(Setting(IN_TURN)) == set()
    assert analyzed(Setting(IN_TURN)).efficiency.transfer > 0.97
    for depth in (1, 2):
        assert waits(20.0, 10.0, 0.0, depth) == (10.0, 0.0)


def test_the_figures_of_the_notes():
    ms = {
        Setting(): 385,
        Setting(NOBODY): 266,
        Setting(network=1e9): 453,
        Setting(network=100e9): 379,
        Setting(how="sends late"): 505,
    }
    assert {setting: round(1e3 * analyzed(setting).span) for setting in ms} == ms
    late = analyzed(Setting(how="sends late"))
    assert sum(late.waits.values())[2] == pytest.approx(0.128, abs=5e-4)
    assert late.efficiency.serialization == pytest.approx(0.73, abs=5e-3)
    assert analyzed(Setting(network=1e9)).efficiency.transfer == pytest.approx(0.83, abs=5e-3)
    assert analyzed(Setting(how="reads slowly")).findings[1].seconds == pytest.approx(
        0.12, abs=1e-3
    )
    link = analyzed(Setting(NOBODY, size=4e6, share=0.25))
    assert link.efficiency.transfer == pytest.approx(0.68, abs=5e-3)


def test_the_placements_of_the_notes():
    def seconds(setting: Coupled) -> dict[str, float]:
        return {named(way): way.seconds for way in ways(setting)}

    usual, one, many = (seconds(Coupled(sampling=n)) for n in (4, 1, 16))
    assert usual["1 + 7"] == pytest.approx(0.988, abs=5e-4)
    assert usual["5 + 3"] == pytest.approx(0.480, abs=5e-4)
    assert usual["all, in turn"] == pytest.approx(0.624, abs=5e-4)
    assert min(one, key=one.get) == "4 + 4" and one["all, in turn"] < 1.02 * one["4 + 4"]
    assert many["7 + 1"] == min(many.values()) == pytest.approx(1.71, abs=5e-3)
    for depth, expected in ((1, 0.580), (8, 0.564)):
        assert seconds(Coupled(6, 4, depth, 0.3))["6 + 2"] == pytest.approx(expected, abs=5e-4)


def test_the_puzzles_of_the_notes(repository):
    notes = (repository / "instructor_notes" / "11_traces_and_waits.md").read_text("utf-8")
    answers = " ".join(notes.split("the puzzles: ")[1].split(". Either")[0].split())
    known = answers.replace("rank ", "").split("; ")
    for number, answer in zip(PUZZLES, known, strict=True):
        planted = puzzle(number)
        words = planted.problem.split()[0]
        ends = re.findall(r"\d+", answer)
        assert int(ends[0]) == number and words in answer and int(ends[1]) == planted.rank
