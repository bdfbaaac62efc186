"""`dlhpc serve`: three engines, as text and as JSON, and errors that name what is wrong."""

import io
import json
import re
import sys

import pytest
from services import large

from lib_dlhpc.cli import main
from lib_dlhpc.commands.serve import predicted_lines
from lib_dlhpc.serving import predict_service, published

SMALL = ["model.layers=1", "model.hidden=32", "model.feed_forward=64", "model.vocabulary=64"]
FEW = ["requests.count=6", "requests.prompt=8", "requests.answer=4", "service.batch=2"]


@pytest.fixture
def served(repository, capsys):
    """A function that runs a verb of `dlhpc serve` on the lab's file, made small, and returns what it printed."""

    def served(verb, *more, status=0):
        file = repository / "labs" / "experiments" / "serving.toml"
        assert main(["serve", verb, str(file), "--set", *SMALL, *FEW, *more]) == status
        return capsys.readouterr()

    return served


@pytest.mark.parametrize(
    ("verb", "engines"),
    [("simulate", {"predicted", "simulated"}), ("run", {"predicted", "simulated", "measured"})],
)
def test_engines_stand_side_by_side(verb, engines, served):
    text = served(verb).out
    assert all(word in text for word in (*engines, "ttft", "tpot", "batch", "p99"))
    printed = served(verb, "--json", "--quiet")
    assert not printed.err
    found = json.loads(printed.out)
    assert set(found) == engines
    assert found["simulated"]["requests"] == 6


def test_a_prediction_names_its_terms_and_its_curve(served):
    text = served("predict").out
    assert all(word in text for word in ("weights", "cache", "prefill", "decode", "limited by"))
    found = json.loads(served("predict", "--json").out)
    assert [point["batch"] for point in found["curve"]] == [1, 2]
    assert found["curve"][0]["cost"] is None  # the laptop has no price


def test_a_rate_below_one_is_not_printed_as_zero(served):
    text = served("simulate", "requests.rate=0.001", "requests.count=1").out
    assert text.startswith("1 request in ") and " 0 tokens/s" not in text
    assert "batch 0.0," not in served("predict", "requests.rate=0.001").out


def test_requests_that_are_all_there_are_compared_by_their_rate(served):
    last = served("simulate", "requests.rate=0").out.splitlines()[-1].split()
    predicted, simulated = map(float, last[1:])
    assert last[0] == "tokens/s"
    assert abs(predicted / simulated - 1) < 0.5  # answers differ in length


def test_a_saturated_service_is_valid_json(served):
    found = json.loads(served("predict", "requests.rate=100000", "--json").out)
    assert found["load"]["saturated"]


def test_stored_prefixes_and_two_pools_are_printed(served):
    shared = ["requests.shared=4", "service.prefix_block=2"]
    assert "find 4 tokens of their prompt stored" in served("predict", *shared).out
    assert "of the prompts' tokens were stored" in served("simulate", *shared).out
    pools = ["service.replicas=3", "service.prefill_replicas=1"]
    assert "1 of 3 replicas read prompts, busy" in served("predict", *pools).out
    assert "ttft" in served("simulate", *pools).out


def test_a_new_name_replaces_a_table(served):
    large = ["machine.name=h100-pod", "service.precision=bf16"]
    assert (
        "llama3-8b on 1 x 1 devices of h100-pod"
        in served("predict", "model.name=llama3-8b", *large).out
    )
    assert "weights of llama3-8b" in served("predict", "model=llama3-8b", status=2).err


def test_a_price_is_printed_where_the_machine_has_one(served):
    assert "/M tokens" not in served("predict").out
    assert "EUR/M tokens" in served("predict", "machine.device_price=2", "machine.currency=EUR").out


def test_a_service_is_read_from_standard_input(repository, capsys, monkeypatch):
    file = repository / "labs" / "experiments" / "serving.toml"
    assert main(["serve", "predict", "--json", str(file)]) == 0
    expected = json.loads(capsys.readouterr().out)
    monkeypatch.setattr(sys, "stdin", io.StringIO(file.read_text("utf-8")))
    assert main(["serve", "predict", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == expected
    monkeypatch.setattr(sys, "stdin", io.StringIO("[model"))
    assert main(["serve", "predict", "-"]) == 2
    assert "Not valid TOML" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("service.batching=dynamic", "legal: continuous, static"),
        ("service.batch=0", "service.batch = 0"),
        ("machine=suummit", "Did you mean 'summit'?"),
        ("service.devices.more=1", "service.devices = {'more': 1}: expected a number"),
    ],
)
def test_a_wrong_value_is_named(change, words, served):
    assert words in served("predict", change, status=2).err


def test_a_missing_file_is_named(capsys):
    assert main(["serve", "simulate", "none.toml"]) == 2
    assert "none.toml: cannot be read: No such file" in capsys.readouterr().err


def test_published_measurements_stand_beside_their_predictions(capsys):
    rows = published()
    assert main(["serve", "validate"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {row.name} " in text and row.source in text for row in rows)
    assert f"\n{len(rows)} published rows, {sum(row.scored for row in rows)} scored" in text
    assert main(["serve", "validate", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {name: each["error"] for name, each in found.items()} == {
        row.name: row.error for row in rows
    }


def test_a_saturated_service_names_replicas_that_are_enough(capsys):
    run = [
        "serve",
        "predict",
        "llama3-70b@h100-pod",
        "--set",
        "requests.rate=60",
        "service.devices=8",
    ]
    assert main(run) == 0
    found = re.search(r"service\.replicas = (\d+) are enough", capsys.readouterr().out)
    for replicas, fits in ((int(found[1]), True), (int(found[1]) - 1, False)):
        assert main([*run, f"service.replicas={replicas}"]) == 0
        assert ("% of capacity" in capsys.readouterr().out) == fits


@pytest.mark.parametrize(
    ("changes", "noted"),
    [
        ({"replicas": 32, "answer": 50}, False),
        ({"replicas": 33, "answer": 50}, True),
        ({"replicas": 2, "answer": 49}, True),
        ({"replicas": 1, "answer": 2}, False),
        ({"replicas": 64, "prefill_replicas": 2, "answer": 2}, False),
    ],
)
def test_a_load_that_was_not_compared_with_simulations_is_noted(changes, noted):
    found = predict_service(large(rate=0.1, batch=2, **changes))
    assert (
        any("NOTE  how much other prompts delay" in line for line in predicted_lines(found))
        == noted
    )
