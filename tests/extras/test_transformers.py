"""What transformers and torch count for each recorded configuration, and the import, are what is recorded."""

import json
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

from lib_dlhpc.importing import import_model

RECORD = Path(__file__).parents[1] / "data" / "hugging_face" / "models.json"
MODELS = json.loads(RECORD.read_text(encoding="utf-8"))


def network(config, device):
    """The network of a configuration, with attention that the counter sees as two products."""
    made = AutoConfig.for_model(**config)
    made._experts_implementation = "eager"
    with torch.device(device):
        return AutoModelForCausalLM.from_config(made, attn_implementation="eager")


def inputs(config, positions, device):
    """Words, and on the meta device masks whose values nothing has to look at."""
    words = {"input_ids": torch.zeros((1, positions), dtype=torch.long, device=device)}
    if config.get("alibi"):
        return words | {"attention_mask": torch.ones((1, positions), device=device)}
    if device == "cpu" or config["model_type"] in ("bloom", "opt", "mpt"):
        return words
    mask = torch.zeros((1, 1, positions, positions), device=device)
    return words | {
        "position_ids": torch.arange(positions, device=device)[None],
        "attention_mask": mask,
    }


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_as_recorded(name):
    recorded, config = MODELS[name], MODELS[name]["config"]
    device = "cpu" if name.startswith("tiny") else "meta"  # routing needs values
    model = network(config, device)
    found = import_model(config, recorded["sequence"]).model
    assert sum(each.numel() for each in model.parameters()) == found.parameters
    if recorded["forward_flop"] is not None:
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(use_cache=False, **inputs(config, recorded["sequence"], device))
        assert counter.get_total_flops() == found.forward_flop == recorded["forward_flop"]
