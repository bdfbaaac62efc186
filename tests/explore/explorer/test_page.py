"""The explorer without a browser: every control moves something, and mistakes are answered and change nothing."""

import html
import json
from functools import cache

import pytest

from lib_dlhpc.costs.roofline import peak_rate
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.address import decode, encode
from lib_dlhpc.explore.explorer.choice import Choice, experiment_of, read
from lib_dlhpc.explore.explorer.controls import CONTROLS, GROUPS, NAMED, OPTIONS
from lib_dlhpc.explore.explorer.headlines import headlines
from lib_dlhpc.explore.explorer.moves import moved
from lib_dlhpc.explore.explorer.page import Explorer
from lib_dlhpc.explore.explorer.panel import control_state, panel_state, wanted
from lib_dlhpc.explore.explorer.parts import step_parts, step_state
from lib_dlhpc.explore.explorer.presets import CHIPS, FIRST, names, of_file, preset
from lib_dlhpc.importing import import_model
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.changes.advice import run_time
from lib_dlhpc.prediction.validation.replays import replays
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import dumps, loads, read_experiment
from lib_dlhpc.spec.units import format_quantity

EXPERTS = {
    "model": {
        "family": "gpt",
        "layers": 4,
        "hidden": 256,
        "heads": 4,
        "sequence": 128,
        "vocabulary": 1000,
        "experts": 8,
    },
    "dataset": "webtext",
    "machine": "selene",
    "strategy": {"nodes": 2, "optimizer": "adam", "precision": "fp16"},
}


pytestmark = pytest.mark.usefixtures("own_state")


STAGES = {
    "model": "llama3-8b",
    "dataset": "webtext",
    "machine": "h100-pod",
    "strategy": {"pipeline": 8, "precision": "bf16", "batch": 16, "microbatches": 16},
}


@cache
def starts():
    """Presets, and six runs whose controls none of them has."""
    found = [Choice(preset(name)) for name in names()]
    gpt, _, _ = moved(Choice(preset("narayanan-2021")), "strategy.schedule", "interleaved")
    sharded, _, _ = moved(Choice(preset("goyal-2017")), "strategy.zero", 3)
    long, _, _ = moved(Choice(preset("narayanan-2021")), "strategy.context", 2)
    cut, _, _ = moved(Choice(preset("narayanan-2021")), "strategy.tensor_pieces", 4)
    files = (Choice(of_file(read_experiment(each))) for each in (EXPERTS, STAGES))
    return (*found, gpt, sharded, long, cut, *files)


def shown(prediction):
    return (
        float(prediction.step_time),
        run_time(prediction),
        float(prediction.energy_to_train),
        tuple(prediction.memory.items()),
    )


@pytest.mark.parametrize("field", NAMED)
def test_every_control_moves_a_headline_or_a_chart_for_some_preset(field):
    for choice in starts():
        e = experiment_of(choice)
        if NAMED[field].off(e):
            continue
        before = shown(predict(e))
        for _, value in NAMED[field].options(e):
            try:
                _, prediction, _ = moved(choice, field, value)
            except SpecError:
                continue
            if shown(prediction) != before:
                return
    pytest.fail("it moves nothing")


@pytest.mark.parametrize("name", ["goyal-2017", "narayanan-2021", "cosmoflow-2018"])
def test_every_control_that_applies_to_a_preset_moves_a_number(name):
    choice = Choice(preset(name))
    e = experiment_of(choice)
    before = shown(predict(e))
    for control in CONTROLS:
        if not control.off(e):
            assert any(
                differs(choice, control, value, before) for _, value in control.options(e)
            ), control.field


def differs(choice, control, value, before):
    """Whether a value of a control leads to other numbers, or a storage to checkpoints."""
    try:
        other, prediction, _ = moved(choice, control.field, value)
    except SpecError:
        return False
    if shown(prediction) != before:
        return True
    # With fast storage it applies.
    saved, e = (NAMED["run.checkpoint_interval"], experiment_of(choice))
    return control.field == "storage.tier" and saved.off(experiment_of(other)) != saved.off(e)


@pytest.mark.parametrize("name", names())
def test_every_control_stands_at_the_value_of_its_preset(name):
    choice = Choice(preset(name))
    e = experiment_of(choice)
    for control in CONTROLS:
        row = control_state(control, choice, e)
        assert row["group"] in GROUPS
        if row["off"]:
            continue
        label = row["options"][row["at"]]
        there, prediction, note = moved(choice, control.field, wanted(choice, control.field, label))
        assert (there, note) == (choice, ""), control.field
        assert not row["changed"] and prediction.experiment == e


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        (name, machine)
        for start, name in enumerate(names())
        for number, machine in enumerate(catalog.names("machines"))
        if (start + number) % 3 == 0
    ],
)
def test_a_machine_can_be_chosen_from_a_preset(name, machine):
    """Every machine from every third preset, and from every preset every third machine."""
    choice = Choice(preset(name))
    there, prediction, _ = moved(choice, "machine.name", machine)
    assert prediction.experiment.machine.name == machine
    back, prediction, _ = moved(there, "machine.name", choice.preset.experiment.machine.name)
    assert prediction.experiment.machine == choice.preset.experiment.machine
    assert prediction.experiment.calibration == choice.preset.experiment.calibration or back.changes


@pytest.mark.parametrize("name", names())
def test_on_a_machine_of_domains_every_number_of_nodes_is_legal(name):
    there, prediction, _ = moved(Choice(preset(name)), "machine.name", "gb200-nvl72")
    for _, nodes in OPTIONS["strategy.nodes"](prediction.experiment):
        moved(there, "strategy.nodes", nodes)


@pytest.mark.parametrize("model", catalog.names("models"))
def test_a_model_can_be_chosen_on_a_preset(model):
    """Every model on every fourth preset, and on every preset every fourth model."""
    for choice in starts()[catalog.names("models").index(model) % 4 :: 4]:
        assert moved(choice, "model.name", model)[1].experiment.model.name == model


def test_what_is_no_option_is_answered_with_the_legal_ones():
    page = Explorer()
    before = page.words["headline"].value
    page.panel.moved = [7, "strategy.nodes", "<b>many"]
    notices = page.words["notices"].value
    assert "Nodes &#x27;&lt;b&gt;many" in notices and "32" in notices
    assert page.words["headline"].value == before and page.panel.state["answered"] == 7
    page.panel.moved = [8, "strategy.nodse", "1"]
    assert "legal: nothing" in page.words["notices"].value


def test_an_illegal_combination_is_barred_and_explained():
    page = Explorer()
    page.choose("narayanan-2021")
    page.move("strategy.lora", 4)
    offload = next(c for c in page.panel.state["controls"] if c["field"] == "strategy.offload")
    assert set(offload["illegal"]) == {"2"} and "adapters" in offload["illegal"]["2"]
    page.move("strategy.offload", "all")
    assert "Adapters (LoRA) 4" in page.words["notices"].value
    assert page.experiment.strategy.offload == "none"


def test_every_control_of_experts_applies_to_a_preset_and_others_fold_it_away():
    fields = [f"strategy.{name}" for name in ("experts", "expert_exchange", "expert_wire")]
    for name in names():
        choice = Choice(preset(name))
        state = panel_state(choice, experiment_of(choice), 0.0, 0)
        rows = {row["field"]: row for row in state["controls"]}
        for field in fields:
            assert bool(rows[field]["off"]) == (name != "deepseek-v3-2048-h800"), (name, field)
            assert "experts" in (rows[field]["off"] or "experts")


def test_a_split_of_a_file_is_shown_by_its_controls():
    page = Explorer()
    page.load(read_experiment(EXPERTS).set({"strategy.tensor": 4, "strategy.recompute": "full"}))
    rows = {row["field"]: row for row in page.panel.state["controls"]}
    for field, label in (("tensor", "4"), ("recompute", "full"), ("experts", "1")):
        row = rows[f"strategy.{field}"]
        assert row["options"][row["at"]] == label
    assert rows["strategy.spatial"]["off"] == "this model has no convolutions"
    page.choose("goyal-2017")
    rows = {row["field"]: row for row in page.panel.state["controls"]}
    assert rows["strategy.experts"]["off"] == "no experts in this model"


def test_other_degrees_keep_the_global_batch():
    choice = Choice(preset("narayanan-2021"))
    for field, value in (
        ("strategy.tensor", 4),
        ("strategy.pipeline", 16),
        ("strategy.pipeline", 1),
    ):
        _, prediction, note = moved(choice, field, value)
        e = prediction.experiment
        assert e.global_batch == 1536 and e.strategy.batch == e.strategy.microbatches
        assert f"batch per replica {e.strategy.batch}" in note


def test_adapters_and_tensor_parallelism_take_each_other_away():
    choice = Choice(preset("narayanan-2021"))
    there, adapted, note = moved(choice, "strategy.lora", 8)
    strategy = adapted.experiment.strategy
    assert (strategy.lora, strategy.tensor) == (8, 1) and "tensor 1" in note
    assert adapted.experiment.global_batch == 1536
    _, split, note = moved(there, "strategy.tensor", 2)
    assert split.experiment.strategy.lora == 0 and "adapters (lora) 0" in note
    _, other, _ = moved(there, "model.name", "resnet50")
    assert other.experiment.strategy.lora == 0


def test_a_changed_control_says_from_what_and_goes_back():
    page = Explorer()
    page.move("times.bandwidth", 2)
    row = next(c for c in page.panel.state["controls"] if c["field"] == "times.bandwidth")
    assert row["changed"] and row["start"] == "× 1"
    page.panel.moved = [1, "times.bandwidth", row["start"]]
    assert page.choice == page.home


def test_twice_the_device_rate_halves_compute_and_doubles_the_peak():
    for name in names():
        choice = Choice(preset(name))
        one, two = (
            predict(experiment_of(c)) for c in (choice, choice.with_changes({"times.rate": 2}))
        )
        assert float(two.forward) == pytest.approx(float(one.forward) / 2)
        assert float(two.backward) == pytest.approx(float(one.backward) / 2)


def test_the_bounds_of_a_step_name_all_that_may_overlap():
    p = predict(experiment_of(Choice(preset(FIRST))))
    low, high = (format_quantity(float(bound), "s") for bound in p.step_time_bounds)
    _, said = step_state(p, None, {})
    words = f" spans {low} (communication and input fully overlapped) to {high} (no overlap)."
    assert said.endswith(words) and p.input_time > 0
    without_input = p.compute + p.straggler_wait + p.pipeline_bubble + p.unhidden + p.checkpoint
    assert p.step_time_bounds[1] == pytest.approx(without_input + p.input_time)


@pytest.mark.parametrize("name", names())
def test_numbers_agree(name):
    p = predict(preset(name).experiment)
    e = p.experiment
    assert sum(part.size for part in step_parts(p)) == pytest.approx(float(p.step_time))
    (used,) = (line.value for line in headlines(p) if line.name == "MFU")
    peak = float(peak_rate(e.machine.device, e.strategy.precision) * e.devices)
    assert 0 < used < 1 and used * peak == pytest.approx(float(p.throughput) * e.model.train_flop)


@pytest.mark.parametrize("run", replays(), ids=lambda run: run.name)
def test_a_prediction_that_misses_its_publication_says_so(run):
    page = Explorer()
    page.choose(run.name)
    published = f"published {format_quantity(run.published_time, 's')}"
    assert published in page.words["headline"].value
    missed = run.miss(float(predict(run.experiment).time_to_train))
    assert html.escape(missed) in page.words["notices"].value
    page.move("run.epochs", 2.0)
    assert published not in page.words["headline"].value


def test_a_choice_that_drops_a_measured_rate_says_so():
    page = Explorer()
    page.move("model.name", "vgg16")
    assert "calibration.rate = 1089.4 is dropped" in page.words["notices"].value
    page.choose("goyal-2017")
    assert "is dropped" not in page.words["notices"].value


def test_a_model_that_does_not_fit_shows_its_wall():
    page = Explorer()
    page.move("machine.name", "laptop")
    page.move("model.name", "gpt3-175b")
    assert "times too much" in page.words["notices"].value
    memory = page.figures["memory"]
    assert memory.data["wall"]["words"][0].startswith("✗ exceeds 4 GB by ")
    shown = " ".join([memory.summary, *(words.value for words in page.words.values())])
    assert shown.count("oes not fit") == 1  # in the headline; the advice says it as well
    verdict, *others = headlines(predict(page.experiment))
    assert verdict.unfit and "Does not fit: " in verdict.text and " of " in verdict.text
    assert not any(line.unfit for line in others) and others[0].name == "Time to train"
    assert 'class="first unfit"' in page.words["headline"].value


def test_a_broken_file_is_reported_and_changes_nothing():
    page = Explorer()
    before, headline = page.choice, page.words["headline"].value
    for number, (text, words) in enumerate(
        {"[model]": "family", "[run]": "is missing", "{": "config.json"}.items()
    ):
        page.file.loaded = [number, text]
        assert words in page.file.problem
    assert page.choice is before and page.words["headline"].value == headline
    page.file.loaded = [3, dumps(preset("laptop").experiment)]
    assert page.file.problem == "" and page.experiment == preset("laptop").experiment


def test_a_model_alone_comes_on_the_nodes_that_are_shown():
    page = Explorer()
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
    }
    config |= {"num_attention_heads": 4, "max_position_embeddings": 128, "vocab_size": 500}
    for number, text in enumerate((import_model(config).toml(), json.dumps(config))):
        page.choose("goyal-2017")
        page.file.loaded = [number, text]
        assert page.file.problem == "" and page.experiment.model == import_model(config).model
        assert (page.experiment.machine.name, page.experiment.strategy.nodes) == ("bigbasin", 32)


def test_explanations_are_made_only_when_asked_for():
    page = Explorer()
    assert page.words["why"].value == ""
    page.every.value = True
    assert page.words["why"].value.count("<details") == 10


def test_the_charts_on_demand_follow():
    page = Explorer()
    assert not page.charts.figures
    page.charts.opened.value = True
    before = page.charts.figures["scaling"].data
    page.move("times.bandwidth", 1 / 8)
    assert page.charts.figures["scaling"].data != before
    page.charts.opened.value = False
    assert page.charts.body.children == ()


def test_what_the_advice_shows_is_what_a_click_applies(with_advice):
    """Its words lag behind a control by a second: a click brings the changes that were shown."""
    page = Explorer()
    page.panel.moved = [1, "strategy.batch", "64"]
    shown = page.plan.state
    assert shown["answered"] == [1, 0] and not shown["stale"] and shown["changes"]
    page.plan.wait()
    assert page.plan.state == {**shown, "stale": True}
    page.plan.asked = [1, {"strategy.nodes": 16}]
    assert page.choice.changes == {"strategy.batch": 64, "strategy.nodes": 16}
    page.plan.asked = [2, {"strategy.nodes": "many"}]
    assert page.choice.changes["strategy.nodes"] == 16 and "many" in page.words["notices"].value


def test_undo_redo_and_pin():
    page = Explorer()
    page.move("strategy.batch", 64)
    page.move("strategy.nodes", 16)
    page.bar.asked = [1, "undo", ""]
    assert page.choice.changes == {"strategy.batch": 64} and page.bar.state["ahead"]
    page.bar.asked = [2, "redo", ""]
    assert page.choice.changes["strategy.nodes"] == 16
    page.bar.asked = [3, "pin", ""]
    assert page.pinned == page.choice and page.words["difference"].value == ""
    page.move("strategy.nodes", 8)
    assert "Against A (nodes 16 → 8)" in page.words["difference"].value
    assert page.figures["step"].data["parts"]["row"].count("A") > 2
    page.bar.asked = [4, "pin", ""]
    assert page.pinned is None and "batch per replica 32 → 64" in page.words["difference"].value


def test_the_address_says_what_is_shown_and_brings_it_back():
    page, other = Explorer(), Explorer()
    assert page.address.state == "" and page.bar.link == "v1&preset=goyal-2017"
    page.choose("narayanan-2021")
    page.move("strategy.nodes", 64)
    page.pin()
    page.move("times.bandwidth", 2)
    state = page.address.state
    assert state == (
        "v1&preset=narayanan-2021&strategy.nodes=64&times.bandwidth=2"
        "&A.preset=narayanan-2021&A.strategy.nodes=64"
    )
    arrives(other, state)
    assert (other.choice, other.pinned) == (page.choice, page.pinned)
    assert other.address.state == state
    arrives(other, "")
    assert other.choice == other.home and other.pinned is None


def arrives(page, fragment):
    page.address.arrived = fragment
    page.address.arrivals += 1


@pytest.mark.parametrize(
    ("fragment", "words"),
    [
        ("v9&preset=you-2018", "version &#x27;v9&#x27;"),
        ("nonsense<script>", "nonsense&lt;script&gt;"),
        ("v1&preset=nobody", "nobody"),
        ("v1&preset=goyal-2017&strategy.nodes=99999", "bigbasin has 44"),
        ("v1&preset=goyal-2017&strategy.zero=[1,2]", "strategy.zero"),
        ("v1&preset=goyal-2017&times.rate=3", "times.rate = 3"),
        ("v1&preset=goyal-2017&strategy.nodes=-3", "Ignored: strategy.nodes = -3"),
        ("v1&preset=goyal-2017&strategy.batch=" + "9" * 300, "strategy.batch"),
        ("v1&file.model=3", "model"),
        ("v1&x=" + "y" * 5000, "the longest is 4,000"),
    ],
)
def test_an_address_that_is_not_understood_opens_the_default_and_says_what_was_ignored(
    fragment, words
):
    page = Explorer()
    page.choose("you-2018")
    arrives(page, fragment)
    assert page.choice == page.home
    assert "Ignored: " in page.words["notices"].value and words in page.words["notices"].value


def test_what_is_right_in_an_address_is_taken():
    page = Explorer()
    arrives(page, "v1&preset=you-2018&strategy.batch=8&colour=red")
    assert page.choice.changes == {"strategy.batch": 8} and "colour" in page.words["notices"].value


def test_an_experiment_of_ones_own_has_an_address():
    page = Explorer(read_experiment(EXPERTS))
    page.move("strategy.zero", 1)
    choice, _, ignored = read(decode(page.address.state).fields)
    assert not ignored and experiment_of(choice) == page.experiment


def test_an_address_is_short():
    assert all(len(encode({"preset": name})) < 40 for name in CHIPS)


def test_the_notebook_makes_the_same_prediction():
    page = Explorer()
    page.move("strategy.nodes", 4)
    page.bar.asked = [1, "notebook", ""]
    _, name, _, text = page.bar.file
    cells = json.loads(text)["cells"]
    code = "".join(cells[1]["source"])
    found = {}
    exec(code, found)
    assert name == "goyal-2017.ipynb" and found["experiment"] == loads(dumps(page.experiment))
