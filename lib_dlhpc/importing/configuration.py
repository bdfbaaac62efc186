"""The fields of a configuration: each is read, known not to change any count, or an error."""

from collections.abc import Mapping
from typing import Any

from lib_dlhpc.errors import SpecError

REQUIRED = object()
# Nothing here depends on them: names, tokens, versions, initial values, small constants, generation, routing losses.
IGNORED = """
architectures model_type torch_dtype dtype transformers_version auto_map _name_or_path tokenizer_class
use_cache bos_token_id eos_token_id pad_token_id unk_token_id prefix initializer_range init_std init_config
init_device layer_norm_eps layer_norm_epsilon norm_epsilon rms_norm_eps pretraining_tp slow_but_exact
skip_bias_add skip_bias_add_qkv offset_alibi masked_softmax_fusion bias_dropout_fusion
    attention_softmax_in_fp32 seq_aux aux_loss_alpha router_aux_loss_coef output_router_logits
ep_size rope_interleave task_specific_params classifier_dropout summary_type summary_use_proj
summary_activation summary_proj_to_labels summary_first_dropout scale_attn_weights
scale_attn_by_inverse_layer_idx reorder_and_upcast_attn gradient_checkpointing is_decoder cache_implementation
n_ctx original_max_position_embeddings verbose tokenizer_name
learned_pos_emb embedding_fraction logit_scale initial_context_length
"""
# Not modeled: element by element or angles, so that no product and no parameter depends on them.
NOTED = {
    "rope_scaling": "angles of positions",
    "rope_parameters": "angles of positions",
    "partial_rotary_factor": "all features of a head are rotated here",
    "rotary_dim": "all features of a head are rotated here",
    "no_rope_layers": "all layers rotate here",
    "no_rope_layer_interval": "all layers rotate here",
    "rotary_pct": "all features of a head are rotated here",
    "attn_logit_softcapping": "not modeled",
    "final_logit_softcapping": "not modeled",
    "clip_qkv": "not modeled",
    "query_pre_attn_scalar": "not modeled",
    "rope_local_base_freq": "one base for all layers here",
    "embedding_multiplier": "not modeled",
    "logits_scaling": "not modeled",
    "residual_multiplier": "not modeled",
    "attention_multiplier": "not modeled",
    "scoring_func": "a router's scores are a softmax here",
    "norm_topk_prob": "weights of several chosen experts add up to 1 here",
    "routed_scaling_factor": "not modeled",
    "router_jitter_noise": "not modeled",
    "quantization_config": "numbers have the width of strategy.precision here",
    "num_nextn_predict_layers": "the layers that predict further words are left out",
    "num_mtp_layers": "the layers that predict further words are left out",
}


class Configuration:
    """A table of which each field must be accounted for; null is as good as absent."""

    def __init__(self, table: Mapping[str, Any], where: str) -> None:
        self.table = {key: value for key, value in table.items() if value is not None}
        self.where, self.named = where, frozenset(table)
        self._read: set[str] = set()

    def take(self, *names: str, default: Any = REQUIRED) -> Any:
        """Return the first field that is there, by any of its names. Raises SpecError if none is."""
        self._read.update(names)
        for name in names:
            if name in self.table:
                return self.table[name]
        if default is REQUIRED:
            raise SpecError(f"{self.where}: needs the key {' or '.join(map(repr, names))}.")
        return default

    def default(self, **values: Any) -> None:
        """Fill in what the file does not name and no default before this has; what it names as null stays absent."""
        known = self.named | self.table.keys()
        self.table |= {name: each for name, each in values.items() if name not in known}

    def require(self, name: str, *legal: Any) -> None:
        """Raise SpecError if a field is there with another value than these."""
        value = self.take(name, default=legal[0])
        if value not in legal:
            raise SpecError(
                f"{self.where}: {name} = {value!r} is not understood; legal:"
                f" {', '.join(map(repr, legal))}."
            )

    def notes(self) -> tuple[str, ...]:
        """Return a note on each field that no count depends on. Raises SpecError that lists all unknown fields."""
        unread = [key for key in self.table if key not in self._read and key not in IGNORED.split()]
        if unknown := [f"{key} = {self.table[key]!r}" for key in unread if key not in NOTED]:
            raise SpecError(f"{self.where}: not understood: {', '.join(unknown)}.")
        return tuple(f"{key} = {self.table[key]!r}: {NOTED[key]}." for key in unread)
