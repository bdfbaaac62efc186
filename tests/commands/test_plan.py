"""`dlhpc plan`: [plan] of the file, overridden by flags."""

import json

import pytest

from lib_dlhpc.cli import main
from lib_dlhpc.planner.result import in_words
from lib_dlhpc.prediction.validation.trust import trust_dict, trust_words
from lib_dlhpc.scale_out import progress
from lib_dlhpc.spec.experiment import load

RUN = """
model = { family = "gpt", layers = 2, hidden = 16, heads = 2, sequence = 8, vocabulary = 16 }
machine = "laptop"
dataset = "words"
[strategy]
batch = 4
[plan]
objectives = ["time", "energy"]
limits = { memory = "1 GB" }
axes = { tensor = { most = 1 }, recompute = ["none"], schedule = "1f1b", microbatches = [1, 2] }
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(RUN)
    return path


def planned(capsys, *words):
    assert main(["plan", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_table_of_the_file_is_what_is_asked(file, capsys):
    found = planned(capsys, file)
    assert found["objectives"] == ["time", "energy"]
    assert {row["strategy.tensor"] for row in found["layouts"]} == {1}
    assert {row["strategy.recompute"] for row in found["layouts"]} == {"none"}
    assert all(row["memory"] <= 1e9 for row in found["layouts"])


def test_a_front_of_one_layout_has_nothing_along_it(file, capsys):
    one = ("--choose", "microbatches=[1]", "zero=[0]", "pipeline=[1]")
    assert main(["plan", str(file), *one]) == 0
    text = capsys.readouterr().out
    assert "knee" in text and "along the front" not in text


def test_a_plan_says_how_far_its_best_layout_can_be_trusted(file, capsys):
    words = (
        file,
        "--objective",
        "time",
        "--choose",
        "microbatches=[1]",
        "zero=[0]",
        "pipeline=[1]",
    )
    found = planned(capsys, *words)
    best = load(file).set({key: value for key, value in found["layouts"][0].items() if "." in key})
    assert found["trust"] == trust_dict(best)
    assert main(["plan", *map(str, words)]) == 0
    step = found["layouts"][0]["step_time"]
    assert f"trust: {trust_words(best, step)}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "said"), [("no/such/best.toml", "no such folder"), ("folder", "a folder")]
)
def test_where_it_cannot_be_saved_is_reported_before_the_search(
    file, name, said, tmp_path, monkeypatch, capsys
):
    def searched(*_, **__):
        raise AssertionError("a search whose result cannot be saved")

    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lib_dlhpc.planner.plan", searched)
    assert main(["plan", str(file), "--save", name]) == 2
    assert capsys.readouterr().err == f"dlhpc: --save {name}: {said}.\n"


def test_a_limit_that_no_layout_is_within_is_named_with_the_least_that_was_reached(file, capsys):
    found = planned(capsys, file, "--objective", "time")
    assert main(["plan", str(file), "--limit", "cost=1e-9", "time=9days"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    least = in_words(min(row["cost"] for row in found["layouts"]), "cost")
    limit = in_words(1e-9, "cost")
    assert f"the least cost predicted is {least}, its limit {limit}." in said
    assert "More nodes" not in said and "time" not in said
    seconds, joules = (min(row[name] for row in found["layouts"]) for name in ("time", "energy"))
    assert main(["plan", str(file), "--limit", f"time={seconds / 2}", f"energy={joules / 2}"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert in_words(seconds, "time") in said and in_words(joules, "energy") in said


def test_flags_override_it_and_the_saved_file_has_what_was_asked(file, tmp_path, capsys):
    saved = tmp_path / "best.toml"
    more = ("--objective", "cost", "--choose", 'recompute=["full"]', "--limit", "energy=1MWh")
    found = planned(capsys, file, *more, "--most", "5", "--save", saved)
    assert found["objectives"] == ["cost"] and found["predicted"] <= 5
    assert {row["strategy.recompute"] for row in found["layouts"]} == {"full"}
    asked = load(saved).plan
    assert (asked.objectives, asked.predictions) == (("cost",), 5)
    assert (asked.limits.energy, asked.limits.memory) == (3.6e9, 1e9)
    assert planned(capsys, saved)["layouts"] == found["layouts"]


@pytest.mark.parametrize(
    ("words", "legal"),
    [
        (("--objective", "speed"), "time, energy, cost"),
        (("--limit", "watts=3"), "memory"),
        (("--choose", "tensor=0"), "at least 1"),
        (("--most", "0"), "at least 1"),
    ],
)
def test_a_wrong_flag_names_what_is_legal(file, capsys, words, legal):
    assert main(["plan", str(file), *words]) == 2
    assert legal in capsys.readouterr().err


def test_progress_goes_to_standard_error_and_quiet_drops_it(file, capsys, monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 0.0)
    assert main(["plan", str(file), "--json"]) == 0
    printed = capsys.readouterr().err
    assert (
        "dlhpc: 1 of 1 chunks done\n" in printed
        and " ruled out by memory or predicted\n" in printed
    )
    assert main(["plan", str(file), "--json", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_a_plan_without_checkpoints_says_what_failures_do_to_it(capsys):
    run = ["plan", "llama3-8b@h100-pod", "-q", "--set", "strategy.nodes=2"]
    few = ["--choose", "tensor=1", "pipeline=1", "zero=1", "microbatches=32", "recompute=none"]
    changes = ["strategy.precision=bf16", "strategy.optimizer=adam", "strategy.batch=32"]
    for tokens, fails in (("1e15", True), ("1e9", False)):
        assert main([*run, *few, "--set", *changes, f"run.tokens={tokens}"]) == 0
        text = capsys.readouterr().out
        assert ("nothing is saved; set run.checkpoint_interval" in text) == fails
        assert ("never done expected" in text) == fails


def test_values_after_a_comma_are_values_of_an_axis(capsys):
    run = ["plan", "llama3-8b@h100-pod", "--json", "-q", "--set", "strategy.batch=32"]
    fixed = ["pipeline=1", "recompute=full", "microbatches=32", "zero=3"]
    found = []
    for several in ("tensor=4,8", "tensor=[4,8]"):
        assert main([*run, "strategy.precision=bf16", "--choose", several, *fixed]) == 0
        found.append(json.loads(capsys.readouterr().out)["layouts"])
    assert found[0] == found[1] and {each["strategy.tensor"] for each in found[0]} <= {4, 8}
