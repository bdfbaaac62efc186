"""Design problems: the hand part follows from the setting by another formula; the file predicts what they say."""

import json
import re
from math import log2, sqrt
from statistics import NormalDist

import pytest

from lib_dlhpc import cli
from lib_dlhpc.explore.course import PATH
from lib_dlhpc.teaching.designs import KINDS, POINTS, problem, solution

NAMES = [module.name for module in PATH]
SEEDS = range(3)


@pytest.fixture(scope="session")
def designs(problems):
    """All design problems, in the version of each seed."""
    return {(name, seed): problems(name, seed) for name in NAMES for seed in SEEDS}


def numbers(found, *pieces):
    """Return the numbers that a setting gives at {} of each piece of its text."""
    patterns = [re.escape(piece).replace(r"\{\}", r"([\d,.]*\d)") for piece in pieces]
    matches = [re.search(pattern, found.setting) for pattern in patterns]
    assert all(matches), pieces
    return [float(match[1].replace(",", "")) for match in matches]


def hand(found):
    """Return the numbers of the part by hand."""
    return [step.value for step in found.parts[0].steps]


def test_there_is_a_design_for_each_module_worth_ten_points(repository, designs):
    folder = repository / "instructor_notes" / "design"
    assert {path.stem for path in folder.glob("*.py")} == set(NAMES)
    assert POINTS == 10 == sum(kind.points for kind in KINDS)
    for found in designs.values():
        assert len(found.parts) == len(KINDS)
        assert all(
            bool(part.half) == (kind.points > 1)
            for kind, part in zip(KINDS, found.parts, strict=True)
        )


@pytest.mark.parametrize("name", NAMES)
def test_versions_differ_and_the_problem_has_none_of_the_solution(designs, name):
    versions = [designs[name, seed] for seed in SEEDS]
    assert len({solution("", found) for found in versions}) == len(versions)
    for found in versions:
        asked = problem("", found)
        assert not any(part.said in asked or part.full in asked for part in found.parts)


@pytest.mark.parametrize("name", NAMES)
def test_the_file_predicts_what_the_solution_says(designs, name, tmp_path, capsys):
    found = designs[name, 0]
    (tmp_path / "start.toml").write_text(found.toml, "utf-8")
    assert cli.main([*found.command.split(), str(tmp_path / "start.toml"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    value = printed["step_time"] if "step_time" in printed else printed["curve"][0]["tpot"]
    assert value == pytest.approx(found.predicted, rel=1e-9)


def test_by_hand_02_to_05(designs):
    for seed in SEEDS:
        found = designs["02_data_parallel", seed]
        nodes, work, millions = numbers(found, "have {} nodes", "take {} ms", "has {} million")
        sent = (2 - 2 / nodes) * millions * 2e6 / (25e9 / 8 * 0.88)
        expected = [2e6 * millions, sent, work / 3e3 + sent, 16 * sent / (work / 1e3)]
        assert hand(found) == pytest.approx(expected, rel=2e-3)

        found = designs["03_allreduce", seed]
        ranks, millions = numbers(found, "on {} nodes", "({} million")
        bucket, rounds = 25e6 / 8.67e9, log2(ranks)
        ring = sum(6e-6 + bucket / ranks for _ in range(2 * (int(ranks) - 1)))
        assert hand(found)[0] == pytest.approx(ring)
        assert hand(found)[1] == pytest.approx(rounds * (6e-6 + bucket))
        halved = sum(6e-6 + bucket / 2 ** (k + 1) for k in range(int(rounds)))
        assert hand(found)[2] == pytest.approx(2 * halved)
        size = hand(found)[3] / 8.67e9
        by_ring = 2 * (ranks - 1) * (6e-6 + size / ranks)
        assert by_ring == pytest.approx(rounds * (6e-6 + size))

        found = designs["04_model_parallel", seed]
        (m,) = numbers(found, "step has {} sequences")
        expected = [22.1e9 * 2, 700 / m, m, 8, 2048 * 6144 * 2]
        assert hand(found) == pytest.approx(expected)

        found = designs["05_hybrid_parallel", seed]
        nodes, billions = numbers(found, "have {} nodes", "see {} billion")
        work = 78e9 * billions * 1e9
        expected = [work, work / (nodes * 8 * 156e12) / 86400]
        expected += [13e9 / 16 * 4 + 13e9 * 12 / (8 * nodes), 18.75]
        assert hand(found) == pytest.approx(expected)


def test_by_hand_06_to_09(designs):
    for seed in SEEDS:
        steps, short, rate, warm, factor = hand(designs["06_large_batch_lars", seed])
        assert (steps, short) == pytest.approx((14075.3, 2502.3), rel=1e-3)
        assert (rate, warm, factor) == pytest.approx((3.2, 781.96, 90 * 4 / 64), rel=1e-3)

        found = designs["07_io_bottlenecks", seed]
        nodes, step, files = numbers(found, "on {} nodes", "takes {} ms", "The {} images")
        wanted, allowed, _, each, one = hand(found)
        assert wanted == pytest.approx(nodes * 256 / (step / 1e3), rel=2e-3)
        assert (allowed, one) == pytest.approx((200e3 / 3, files / (200e3 / 3)))
        assert each == pytest.approx(nodes * one)

        found = designs["08_memory_and_out_of_core", seed]
        gpus, tokens = numbers(found, "sees {} sequences", "sequences of {} tokens")
        parts = [2, 2, 4, 8]  # weight, gradient, master weight, moments
        sharded = [
            sum(part / (gpus if place >= first else 1) for place, part in enumerate(parts))
            for first in (4, 2, 1, 0)
        ]
        expected = [6.74e9 * each for each in sharded]
        expected += [32 * 32 * tokens * tokens * 2, 32 * tokens * 4096 * 2]
        assert hand(found) == pytest.approx(expected)

        found = designs["09_state_and_failures", seed]
        (nodes,) = numbers(found, "on {} nodes")
        expected = [70.6e9 * 14, 70.6 * 7 / 1e3, 6333 / nodes]
        expected.append(100 * 1500 / (6333 * 3600 / nodes))
        assert hand(found) == pytest.approx(expected)
        blocked, young = (step.value for step in found.parts[2].steps[:2])
        assert young == pytest.approx(sqrt(2 * blocked * 6333 * 3600 / nodes))


def test_by_hand_01_and_10_to_13(designs):
    for seed in SEEDS:
        work = 8 * 1.558e9 * 1024
        expected = [work, work / 271.44e12, 28 * 1.558e9 / 1.555e12, 312 / 1.555]
        assert hand(designs["01_one_step", seed]) == pytest.approx(expected)

        found = designs["10_energy_and_planning", seed]
        (billions,) = numbers(found, "see {} billion")
        hours = 6 * 6.74 * billions * 1e18 / (256 * 156e12) / 3600
        expected = [6 * 6.74e18 * billions, hours, 32 * 5.144 * 1.3 * hours]
        expected.append(((400 - 162) / (300 - 162)) ** 0.25)
        assert hand(found) == pytest.approx(expected)

        found = designs["11_traces_and_waits", seed]
        nodes, work = numbers(found, "on {} nodes", "works {} ms")
        late, wait, _, efficiency = hand(found)
        quantile = NormalDist().cdf(late / 6)
        assert quantile == pytest.approx((8 * nodes - 3 / 8) / (8 * nodes + 1 / 4))
        assert wait == pytest.approx(work / 1e3 * late / 100, rel=2e-3)
        assert efficiency == pytest.approx(1e4 / (100 + late))

        found = designs["12_train_a_language_model", seed]
        sequences, nodes = numbers(found, "has only {} sequences", "on {} nodes")
        products, scores = 6 * 70.6e9, 3 * 2 * 2 * 131_072 / 2 * 8192 * 80
        peak = sequences * 131_072 * (products + scores) / (8 * nodes * 989e12)
        expected = [products, scores, peak, 700, 2 * 16_384 * 128 * 2]
        assert hand(found) == pytest.approx(expected)

        found = designs["13_serving", seed]
        (rate,) = numbers(found, "{} requests per second")
        expected = [17.65e9, 17.65 / 3350, 80 * 2 * 128 * 2, 141.2e12 / (8 * 989e12), 200 * rate]
        assert hand(found) == pytest.approx(expected)
