"""Hybrids of state-space layers, attention and feed-forward networks."""

from lib_dlhpc.errors import SpecError
from lib_dlhpc.importing.configuration import Configuration
from lib_dlhpc.importing.hugging_face.fields import Options, attention, sizes
from lib_dlhpc.spec.networks.hybrid import LETTERS


def nemotron_h(config: Configuration) -> Options:
    """Nemotron-H: layers of one part each, by the letters of a pattern. Raises SpecError for layers of experts."""
    pattern = config.take("hybrid_override_pattern")
    if not isinstance(pattern, str) or set(pattern) - {*LETTERS}:
        raise SpecError(
            f"{config.where}: hybrid_override_pattern = {pattern!r} is not understood; legal: letters M, * and -;"
            " layers of experts, E, are not modeled."
        )
    config.default(mlp_hidden_act="relu2", use_conv_bias=True, n_groups=8, conv_kernel=4)
    config.require("mlp_hidden_act", "relu2")
    config.require("use_conv_bias", True)
    for name in ("attention_bias", "mlp_bias", "mamba_proj_bias", "use_bias"):
        if config.take(name, default=False):
            raise SpecError(f"{config.where}: {name} = true is not modeled; legal: false.")
    size = config.take("head_dim", "attention_head_dim", default=0)
    found = {**sizes(config), "family": "hybrid", "pattern": pattern}
    layers = found.pop("layers")
    if layers != len(pattern):
        raise SpecError(
            f"{config.where}: num_hidden_layers = {layers}: hybrid_override_pattern has {len(pattern)} layers."
        )
    attend = attention(config, head_size=size)
    return {
        **found,
        "attention": attend,
        "state_space": {
            "heads": config.take("mamba_num_heads"),
            "head_size": config.take("mamba_head_dim"),
            "state": config.take("ssm_state_size"),
            "groups": config.take("n_groups"),
            "kernel": config.take("conv_kernel"),
            "chunk": config.take("chunk_size", default=256),
        },
        "feed_forward": {
            "features": config.take("intermediate_size"),
            "activation": "relu",
            "gated": False,
        },
    }
