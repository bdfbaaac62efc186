"""Each number in a title of a slide is what the library computes, or what a publication has."""

import math
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from lib_dlhpc.costs import peak_rate
from lib_dlhpc.explore.allreduce.nodes import Nodes, buffers_out
from lib_dlhpc.explore.course import PATH
from lib_dlhpc.explore.data_parallel import questions as data_parallel
from lib_dlhpc.explore.data_parallel.race import Race, served
from lib_dlhpc.explore.data_parallel.scaling import Scaling
from lib_dlhpc.explore.energy_planning import questions as energy_planning
from lib_dlhpc.explore.failures import questions as failures
from lib_dlhpc.explore.failures.network import Learner
from lib_dlhpc.explore.failures.questions import saved
from lib_dlhpc.explore.failures.versions import last_layer_bytes
from lib_dlhpc.explore.hybrid_parallel import map as gpt3
from lib_dlhpc.explore.hybrid_parallel import published
from lib_dlhpc.explore.hybrid_parallel.deep import Deep, predicted
from lib_dlhpc.explore.io_bottleneck.limits import Setting as Files
from lib_dlhpc.explore.io_bottleneck.limits import hours
from lib_dlhpc.explore.language_model import bubbles, sequences
from lib_dlhpc.explore.language_model import questions as language_model
from lib_dlhpc.explore.language_model.layout import GPUS
from lib_dlhpc.explore.language_model.layout import Setting as Llama
from lib_dlhpc.explore.large_batch.questions import LARGE
from lib_dlhpc.explore.large_batch.rules import MNIST, mean
from lib_dlhpc.explore.large_batch.time import steps_to_accuracy
from lib_dlhpc.explore.memory_wall import questions as memory_wall
from lib_dlhpc.explore.memory_wall import ways
from lib_dlhpc.explore.serving import replicas
from lib_dlhpc.explore.slides.notebook import notebook_text
from lib_dlhpc.explore.slides.sources import titles_of
from lib_dlhpc.explore.traces import coupled, puzzle
from lib_dlhpc.schedules import schedule
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.machine import load_machine

NAMES = re.compile(r"Llama 3|1F1B|ZB-H1|fp8|GPT-3|V100|ResNet-50|ImageNet")
WORDS = {"half": 0.5, "halves": 0.5, "tenth": 0.1, "a minute": 60, "two": 2, "three": 3}
WORDS |= {"four": 4, "five": 5, "seven": 7, "eight": 8, "twelve": 12}
WORDS |= {"one thousand": 1000, "million": 1e6}
FOUND = re.compile(rf"\b(?:{'|'.join(WORDS)})\b|\d[\d,]*", re.I)
H100 = load_machine("h100-pod").device


def numbers(title):
    """Return the numbers of a title; a number before "million" is one with it."""
    found = [
        WORDS.get(text.lower()) or float(text.replace(",", ""))
        for text in FOUND.findall(NAMES.sub("", title))
    ]
    return [found[0] * 1e6] if "million" in title else found


def worst(own, *rows, table="published"):
    """Return by how many percent the predictions in a module's table are off at most, rounded up; rows: from 0."""
    errors = [abs(float(row[-1].strip("%"))) for row in own.lesson.tables[table]().rows[1:]]
    return math.ceil(max(errors[row] for row in rows or range(len(errors))))


def gain():
    """Return how many times the GPUs of the guess there are, and how many times as fast a fixed batch is then."""
    outcome, _ = data_parallel.lesson.outcomes["gain"]
    return [2048 / Scaling().gpus, outcome()]


def left():
    """Return which part of the steps at the critical batch no larger batch needs."""
    return [1 - float(steps_to_accuracy(1e12, 1.0)) / float(steps_to_accuracy(1.0, 1.0))]


def ring():
    """Return the ranks of the example, its rounds, those that reduce and those that gather."""
    rounds = list(schedule("ring", 8, 64).rounds())
    reduce = sum(bool(part.reduce.all()) for part in rounds)
    return [8, len(rounds), reduce, len(rounds) - reduce]


def far_off():
    """Return how many percent the calibrated prediction is off, and the others at most."""
    rows = published.comparisons()
    assert "GPT-3" in rows[1][0] and "39 B" in rows[1][-1]
    errors = [100 * abs(row[3] / row[2] - 1) for row in rows]
    return [round(errors.pop(1)), max(errors)]


def kinds():
    """Return how many kinds of parallelism Llama 3's layout uses, and that for 131,072 tokens, of 16 context ranks."""
    layouts = (Llama(), Llama(context=16))
    ranks = ((own.tensor, own.pipeline, own.context, GPUS // own.replica) for own in layouts)
    return [sum(each > 1 for each in own) for own in ranks]


def nodes_of_a_ring():
    """Return the nodes of the ring in the settings of its slide."""
    text = Path(sequences.__file__).with_name("slides.toml").read_text("utf-8")
    return [tomllib.loads(text)["settings"]["far_ring"]["context"] / sequences.PER_NODE]


def devices_of_an_image():
    """Return how many share a replica; one device alone cannot hold an image."""
    assert not predicted(Deep(), 1, 1).fits
    return [Deep().shared]


def cheapest_and_fastest():
    """Return the GPUs of a replica with the cheapest and with the fastest token."""
    eight = replicas.Setting()
    quickest = {
        size: min(point.tpot for point in replicas.paths(eight)[size]) for size in (2, 4, 8)
    }
    return [replicas.cheapest(eight, np.inf)[0], min(quickest, key=quickest.get)]


def links():
    """Return the links of a node in the second experiment of module 08, and Gb/s of each."""
    link, count = ways.NETWORKS[ways.Setting().network]
    return [count, float(catalog.read("links", link)["bandwidth"].split()[0])]


CALLS = {
    "256 GPUs lose a tenth of their efficiency": lambda: [
        Scaling().gpus,
        1 - float(data_parallel.lesson.tables["published"]().rows[2][1].rstrip("%")) / 100,
    ],
    "With 8 equally fast workers, most gradients are 7 updates old": lambda: [
        Race().workers,
        served(Race().workers, Race().servers, Race().slow).histogram.argmax(),
    ],
    "With a fixed batch, eight times the GPUs are only three times as fast": gain,
    "Predicted losses and checkpoints are within 3% of the published ones": lambda: [
        worst(failures)
    ],
    "Predicted memory is within 1%, and time within 2%, of published figures": lambda: [
        worst(memory_wall, 0, 1, 2, 3, 6),
        worst(memory_wall, 4, 5),
    ],
    "Predictions are within 1% of published figures; the energies were not metered": lambda: [
        worst(energy_planning)
    ],
    "Predicted rates are within 4% of the published ones, after one calibration": lambda: [
        worst(language_model, table="published_rates")
    ],
    "Beyond the critical batch, a larger batch saves at most half of the remaining steps": left,
    "A ring of 8 ranks needs 14 rounds: 7 to reduce, 7 to gather": ring,
    "Recursive doubling sends the whole buffer through each NIC 40 times": lambda: [
        buffers_out("recursive_doubling", Nodes().nodes, Nodes().devices)
    ],
    "A calibrated prediction is 2% off, uncalibrated ones are up to 173% off": far_off,
    "Tensor ranks × stages × replicas must make 384 GPUs": lambda: [
        gpt3.experiment_of(gpt3.Ways(), 8, 12).devices
    ],
    "No V100 holds one image, so 16 of them share a replica": devices_of_an_image,
    "At 32 times the batch, linear scaling collapses in spite of its warm-up": lambda: [
        LARGE / MNIST.base_batch
    ],
    "The next version stores only 3% of its bytes: the last layer": lambda: [
        100 * last_layer_bytes() / Learner().network.weights.nbytes
    ],
    "A growing batch can replace a decaying rate, in 44% of the steps": lambda: [
        100 * mean("growth", MNIST.base_batch).steps / mean("decay", MNIST.base_batch).steps
    ],
    "A published run of ResNet-50 opened 117 million files": lambda: [hours(Files()).opened],
    "An asynchronous checkpoint stalls for milliseconds and is durable a minute later": lambda: [
        float(saved("asynchronous").saving.background)
    ],
    "Each of twelve traces has one planted problem": lambda: [len(puzzle.PUZZLES)],
    "With five ranks simulating and three training, the run takes half the time": lambda: [
        coupled.best(coupled.Setting()).simulating,
        coupled.RANKS - coupled.best(coupled.Setting()).simulating,
        1 / coupled.times_faster(coupled.Setting()),
    ],
    "Llama 3 was trained with three kinds of parallelism at once, long sequences with four": kinds,
    "Over four nodes, a ring is exposed until sequences are very long": nodes_of_a_ring,
    "ZB-H1 halves the idle seconds of 1F1B": lambda: [
        bubbles.closed_forms(bubbles.Setting())["ZB-H1"].idle
        / bubbles.closed_forms(bubbles.Setting())["1F1B"].idle
    ],
    "fp8 halves the operands that are sent or stored, and at best the time of matmuls": lambda: [
        peak_rate(H100, "bf16") / peak_rate(H100, "fp8")
    ],
    "Over two 25 Gb/s links, pipelines give the shortest step that fits": links,
    "Four GPUs per replica give the cheapest token, eight give the fastest": cheapest_and_fastest,
}


@pytest.fixture(scope="module")
def titles(repository):
    """Return all titles of all decks' ideas, figures and tables."""
    found = (titles_of(notebook_text(repository / "modules" / module.file)) for module in PATH)
    return [title for own in found for part in (*own[:3], own.answered) for title in part.values()]


def test_every_title_with_a_number_has_a_call(titles):
    assert {title for title in titles if numbers(title)} == set(CALLS)


@pytest.mark.parametrize("title", CALLS)
def test_the_numbers_of_a_title_are_those_of_the_call(title):
    assert numbers(title) == pytest.approx([float(each) for each in CALLS[title]()], rel=0.05)


def test_a_number_is_found_in_words_and_in_digits():
    assert numbers("ZB-H1 of 16,384 GPUs halves 1F1B") == [16384, 0.5]
    assert numbers("Some 117 million files") == [117e6]
    assert numbers("Nothing of Llama 3") == []
