"""Causal language models of Hugging Face transformers, from the fields of their `config.json`.

gated.py    Llama and its relatives; plain.py: networks with layer norms; mixtures.py: experts
hybrid.py   state-space layers; fields.py: what their configurations share
"""

from collections.abc import Callable, Mapping
from typing import Any

from lib_dlhpc.errors import SpecError, listed
from lib_dlhpc.importing.configuration import Configuration
from lib_dlhpc.importing.hugging_face import gated, hybrid, mixtures, plain
from lib_dlhpc.importing.hugging_face.fields import Options
from lib_dlhpc.importing.imported import Imported
from lib_dlhpc.spec.networks import build


def from_config(
    table: Mapping[str, Any], sequence: int = 0, where: str = "config.json"
) -> Imported:
    """Return the network of a configuration; sequence: words of a sample; 0: as many as it has positions for.

    Raises SpecError for a model type that is not known, and lists the keys and values that are not understood.
    """
    config = Configuration(table, where)
    kind = config.take("model_type")
    if why := UNMODELED.get(str(kind)):
        raise SpecError(f"{where}: model_type = {kind!r}: {why} is not modeled (docs/limits.md).")
    if not isinstance(kind, str) or kind not in READERS:
        head = f"{where}: model_type = {kind!r}:"
        raise SpecError(listed(head, kind, READERS, "must be one of"))
    options = READERS[kind](config)
    positions = config.take(
        "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", default=0
    )
    options["sequence"] = sequence or positions
    if not options["sequence"]:
        raise SpecError(f"{where}: says no length of a sequence; give one: --sequence 2048.")
    family = options.pop("family", "decoder")
    model = build(family, {key: value for key, value in options.items() if value is not None})
    return Imported(model, where, config.notes())


UNMODELED = {
    **dict.fromkeys(("mamba", "jamba"), "Mamba-1"),
    "qwen3_next": "gated DeltaNet",
    "kimi_linear": "Kimi Delta Attention",
    "minimax": "lightning attention",
}
READERS: dict[str, Callable[[Configuration], Options]] = {
    "llama": gated.llama,
    "mistral": gated.llama,
    "mixtral": mixtures.mixtral,
    "qwen2": gated.qwen2,
    "qwen2_moe": mixtures.qwen2_moe,
    "qwen3": gated.qwen3,
    "qwen3_moe": mixtures.qwen3_moe,
    "gemma": gated.gemma,
    "gemma2": gated.gemma2,
    "gemma3_text": gated.gemma3,
    "granite": gated.llama,
    "phi": plain.phi,
    "phi3": gated.phi3,
    "starcoder2": plain.starcoder2,
    "deepseek_v2": mixtures.deepseek_v2,
    "deepseek_v3": mixtures.deepseek_v3,
    "deepseek_v32": mixtures.deepseek_v32,
    "gpt2": plain.gpt2,
    "gpt_neox": plain.gpt_neox,
    "opt": plain.opt,
    "bloom": plain.bloom,
    "mpt": plain.mpt,
    "falcon": plain.falcon,
    "gptj": plain.gptj,
    "codegen": plain.gptj,
    "gpt_bigcode": plain.gpt_bigcode,
    "cohere": plain.cohere,
    "cohere2": plain.cohere2,
    "stablelm": plain.stablelm,
    "nemotron": plain.nemotron,
    "nemotron_h": hybrid.nemotron_h,
    "bamba": hybrid.bamba,
    "granitemoehybrid": hybrid.granite_hybrid,
    "mamba2": hybrid.mamba2,
    "smollm3": gated.smollm3,
    "seed_oss": gated.seed_oss,
    "ernie4_5": gated.ernie,
    "hunyuan_v1_dense": gated.hunyuan,
    "exaone4": gated.exaone4,
    "arcee": gated.arcee,
    "glm": gated.glm,
    "glm4": gated.glm4,
    "granitemoe": mixtures.mixtral,
    "dots1": mixtures.dots1,
    "glm4_moe": mixtures.glm4_moe,
    "olmo": gated.olmo,
    "olmo2": gated.olmo2,
    "olmo3": gated.olmo3,
    "olmoe": mixtures.olmoe,
    "flex_olmo": mixtures.flex_olmo,
    "gpt_oss": mixtures.gpt_oss,
}
