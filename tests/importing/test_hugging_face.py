"""Imported configurations have the parameters and FLOP that transformers and torch's counter report for them.

tests/data/hugging_face/models.json holds sizes of public models, their parameters on torch's meta device, and the
FLOP of a forward pass by torch.utils.flop_counter where that runs there; tests/extras counts both anew.
"""

import json
import tomllib
from pathlib import Path

import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.importing import import_model
from lib_dlhpc.importing.hugging_face import READERS
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.networks import build

RECORD = Path(__file__).parents[1] / "data" / "hugging_face" / "models.json"
MODELS = json.loads(RECORD.read_text(encoding="utf-8"))
LLAMA = MODELS["llama3-8b"]["config"]


@pytest.mark.parametrize("name", MODELS)
def test_parameters_and_flop_are_those_of_transformers(name):
    recorded = MODELS[name]
    model = import_model(recorded["config"], recorded["sequence"]).model
    assert model.parameters == recorded["parameters"]
    assert recorded["forward_flop"] in (None, model.forward_flop)


def test_each_known_type_is_recorded():
    """But for DeepSeek-V3.2: its sizes are those of its authors' code (tests/layers/test_sparse.py)."""
    recorded = {each["config"]["model_type"] for each in MODELS.values()}
    assert recorded | {"deepseek_v32"} == set(READERS)


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("llama3-8b", "llama3-8b"),
        ("bloom-7b1", "bloom-176b"),
        ("mpt-7b", "mpt-7b"),
        ("deepseek-v3", "deepseek-v3"),
        ("gpt-oss-120b", "gpt-oss-120b"),
    ],
)
def test_an_imported_network_is_that_of_its_family_layer_by_layer(name, entry):
    options = catalog.body("models", entry)
    family = options.pop("family")
    if entry == "bloom-176b":
        options |= {"layers": 30, "hidden": 4096, "heads": 32}
    found = import_model(MODELS[name]["config"], options["sequence"]).model
    assert found.layers == build(family, options).layers


def test_a_window_of_some_layers():
    """Gemma 3: five layers of a window, then one that sees all (Gemma team 2025, section 2)."""
    model = import_model(MODELS["gemma-3-1b"]["config"]).model
    windows = [layer.attributes["window"] for layer in model.layers if layer.kind == "attention"]
    assert windows == [0 if number % 6 == 0 else 512 for number in range(1, 27)]


@pytest.mark.parametrize(
    ("name", "total", "active"), [("gpt-oss-120b", 116.83, 5.13), ("gpt-oss-20b", 20.91, 3.61)]
)
def test_gpt_oss_has_the_weights_of_its_model_card(name, total, active):
    """OpenAI 2025, table 1: in billions; those that a token uses are without the table of words."""
    model = import_model(MODELS[name]["config"]).model
    used = 0.0
    for layer in model.layers:
        if layer.kind == "gated_experts":
            used += layer.parameters * layer.attributes["chosen"] / layer.attributes["experts"]
        elif layer.kind != "embedding":
            used += layer.parameters
    assert (round(model.parameters / 1e9, 2), round(used / 1e9, 2)) == (total, active)
    seen = [layer.attributes["window"] for layer in model.layers if layer.kind == "attention"]
    assert seen == [128, 0] * (len(seen) // 2)
    assert [layer.parameters for layer in model.layers if layer.kind == "sinks"] == [64] * len(seen)


def test_olmo_has_norms_without_weights_or_of_all_heads():
    first, second = (
        import_model(MODELS[name]["config"]).model for name in ("olmo-7b", "olmo-2-7b")
    )
    assert {layer.parameters for layer in first.layers if layer.kind == "layer_norm"} == {0}
    norms = [layer.parameters for layer in second.layers if layer.kind == "width_norm"]
    assert norms == [2 * 4096] * 32
    block = [layer.kind for layer in second.layers if layer.name.startswith("layer1.")]
    assert block.count("rms_norm") == 2 and block[-3:] == ["dense", "rms_norm", "add"]


@pytest.mark.parametrize("name", ["command-r7b", "exaone-4-32b"])
def test_a_pattern_of_windows_is_a_number_or_letters(name):
    config = MODELS[name]["config"]
    one, other = (import_model({**config, "sliding_window_pattern": each}) for each in (4, "LLLG"))
    windows = [
        layer.attributes["window"] for layer in one.model.layers if layer.kind == "attention"
    ]
    assert windows == [4096, 4096, 4096, 0] * (config["num_hidden_layers"] // 4)
    assert one.model.layers == other.model.layers
    assert import_model({**config, "sliding_window_pattern": None}).model.layers == one.model.layers
    for wrong in (0, "", "LX", ["L"]):
        with pytest.raises(SpecError, match="sliding_window_pattern"):
            import_model({**config, "sliding_window_pattern": wrong})
    with pytest.raises(SpecError, match="layer_types"):
        import_model({**config, "sliding_window_pattern": "LGG"})


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("command-r7b", "sliding_window", 4096),
        ("gemma-2-9b", "sliding_window", 4096),
        ("seed-oss-36b", "attention_dropout", 0.1),
        ("glm-4-9b", "attention_bias", True),
        ("glm-4.5-air", "first_k_dense_replace", 1),
        ("afm-4.5b", "hidden_act", "relu2"),
        ("ernie-4.5-0.3b", "head_dim", 128),
        ("gpt-oss-120b", "sliding_window", 128),
        ("gpt-oss-120b", "attention_bias", True),
        ("olmo-3", "sliding_window", 4096),
    ],
)
def test_a_field_that_is_not_there_has_the_value_of_transformers(name, field, value):
    config = {key: each for key, each in MODELS[name]["config"].items() if key != field}
    found = import_model(config, 8).model.layers
    assert found == import_model({**config, field: value}, 8).model.layers


def test_a_window_that_is_null_is_none():
    model = import_model({**MODELS["exaone-4-32b"]["config"], "sliding_window": None}).model
    assert not any(layer.attributes.get("window") for layer in model.layers)


def groups(name, changes):
    """Return the groups of experts that an imported configuration has, and how many of them a token has."""
    model = import_model({**MODELS[name]["config"], **changes}).model
    (found,) = {
        (layer.attributes["groups"], layer.attributes["chosen_groups"])
        for layer in model.layers
        if layer.traits.tensor == "experts"
    }
    return found


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("deepseek-v3", {}, (8, 4)),
        ("deepseek-v3", {"n_group": 4, "topk_group": 2}, (4, 2)),
        ("deepseek-v3", {"n_group": None, "topk_group": None}, (8, 4)),  # those of transformers
        ("deepseek-v3", {"n_group": 1, "topk_group": 1}, (1, 0)),
        ("deepseek-v2-lite", {"n_group": 8, "topk_group": 3}, (1, 0)),  # greedy: of all experts
        (
            "deepseek-v2-lite",  # DeepSeek-V2
            {"topk_method": "group_limited_greedy", "n_group": 8, "topk_group": 3},
            (8, 3),
        ),
    ],
)
def test_groups_of_experts_are_those_of_the_file(name, changes, expected):
    assert groups(name, changes) == expected


def test_how_tokens_are_routed_is_never_dropped():
    """What the network has is read, what it has in another way is a note, and all else is an error."""
    config = MODELS["deepseek-v3"]["config"]
    notes = "\n".join(import_model(config).notes)
    routing = ("scoring_func", "norm_topk_prob", "routed_scaling_factor")
    assert all(f"{name} = {config[name]!r}: " in notes for name in routing)
    for name, value in {"topk_method": "random", "moe_layer_freq": 2, "n_limited": 3}.items():
        with pytest.raises(SpecError, match=f"{name} = {value!r}"):
            import_model({**config, name: value})
    with pytest.raises(SpecError, match="chosen_groups = 1; legal: 2 to the 64 groups"):
        import_model({**config, "n_group": 64, "topk_group": 1})


@pytest.mark.parametrize(
    ("kind", "why"),
    [("jamba", "Mamba-1"), ("qwen3_next", "gated DeltaNet"), ("minimax", "lightning")],
)
def test_layers_that_are_not_modeled_are_named(kind, why):
    with pytest.raises(SpecError, match=f"model_type = '{kind}': {why}.* is not modeled"):
        import_model({**LLAMA, "model_type": kind})


def test_an_indexer_is_read_and_never_dropped():
    config = MODELS["deepseek-v3"]["config"]
    fields = {"index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128}
    sparse = {**config, "model_type": "deepseek_v32", **fields}
    found = import_model(sparse, sequence=131072).model
    assert found.layers == read_model("deepseek-v3.2").layers
    fewer = import_model({**sparse, "index_topk": 64}, sequence=128).model.layers
    assert {x.attributes["chosen"] for x in fewer if x.kind == "indexer"} == {64}
    with pytest.raises(SpecError, match="not understood: index_topk = 2048, index_n_heads = 64"):
        import_model({**config, **fields})


def test_the_toml_is_the_model_again(tmp_path):
    found = import_model(MODELS["tiny-deepseek_v3"]["config"])
    again = read_model(tomllib.loads(found.toml())["model"])
    assert again.layers == found.model.layers
    (tmp_path / "config.json").write_text(json.dumps(MODELS["tiny-deepseek_v3"]["config"]))
    assert import_model(tmp_path).model.layers == again.layers


def test_what_no_count_depends_on_is_a_note():
    found = import_model({**LLAMA, "rope_scaling": {"factor": 8.0}, "torch_dtype": "bfloat16"})
    assert found.notes == ("rope_scaling = {'factor': 8.0}: angles of positions.",)
    assert "# rope_scaling" in found.toml()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "lama"}, ["'lama'", "'llama'", "mixtral"]),
        ({"model_type": None}, ["model_type"]),
        ({"model_type": ["llama"]}, ["['llama']", "mixtral"]),
        ({"hidden_size": None}, ["hidden_size", "n_embd"]),
        ({"hidden_act": "mish"}, ["'mish'", "silu", "gelu"]),
        ({"sinks": 4, "loops": 2}, ["sinks = 4", "loops = 2"]),
        ({"clip_qkv": 8.0}, ["clip_qkv = 8.0", "legal: 0"]),
        ({"num_key_value_heads": 5}, ["kv_heads = 5", "heads = 32"]),
        ({"layer_types": ["linear_attention"], "sliding_window": 5}, ["linear_attention"]),
        (
            {"sliding_window": 5, "max_window_layers": 20},
            ["max_window_layers = 20", "legal: 0, 32"],
        ),
    ],
)
def test_what_is_not_understood_is_named(changes, words):
    with pytest.raises(SpecError) as error:
        import_model({**LLAMA, **changes})
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("field", "value"), [("swiglu_limit", 5.0), ("swiglu_alpha", 1.0), ("hidden_act", "gelu")]
)
def test_experts_that_are_clamped_in_another_way_are_named(field, value):
    with pytest.raises(SpecError, match=f"{field} = {value!r}"):
        import_model({**MODELS["gpt-oss-20b"]["config"], field: value})


def test_a_clip_of_queries_and_keys_is_a_note():
    assert import_model(MODELS["olmo-7b"]["config"]).notes == ("clip_qkv = 8.0: not modeled.",)


@pytest.mark.parametrize("text", ["", "[1]", None])
def test_a_file_that_is_no_configuration(tmp_path, text):
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(SpecError, match=r"config\.json"):
        import_model(tmp_path)
