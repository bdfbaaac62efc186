"""How the decoders' outputs and gradients were recorded: PyTorch 2.13 in float64 on one CPU, python make.py.

Small decoders written with PyTorch's own functions. Each file holds the weights by name, words, the words that
follow, logits, the loss and its gradients. decoders.json has the options of each.
"""

import json
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

HERE, BATCH = Path(__file__).parent, 3
GELU = {"silu": F.silu, "gelu": lambda x: F.gelu(x, approximate="tanh")}


def rotated(x, base):
    """x: (batch, heads, positions, d); features j and j + d / 2 are a complex number."""
    positions, half = x.shape[-2], x.shape[-1] // 2
    rates = base ** (-torch.arange(half, dtype=x.dtype) / half)
    turns = torch.polar(torch.ones(()).to(x), torch.outer(torch.arange(positions).to(x), rates))
    turned = torch.complex(x[..., :half], x[..., half:]) * turns
    return torch.cat([turned.real, turned.imag], -1)


def bias_of(positions, window=0, slopes=None):
    """What is added to the scores: minus infinity where a position does not see, and ALiBi's."""
    at = torch.arange(positions)
    distance = at[:, None] - at[None, :]
    seen = distance >= 0
    if window:
        seen &= distance < window
    alibi = 0 if slopes is None else -slopes[:, None, None] * distance
    return torch.where(seen, alibi, -torch.inf).to(torch.float64)


def attended(x, w, name, heads, kv_heads, base=0, **bias):
    qkv = F.linear(x, w[name + "qkv.weight"].T, w.get(name + "qkv.bias"))
    size = qkv.shape[-1] // (heads + 2 * kv_heads)
    q, k, v = qkv.split([heads * size, kv_heads * size, kv_heads * size], -1)
    q, k, v = (each.unflatten(-1, (-1, size)).transpose(1, 2) for each in (q, k, v))
    if base:
        q, k = rotated(q, base), rotated(k, base)
    mask = bias_of(x.shape[1], **bias)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=kv_heads < heads)
    return y.transpose(1, 2).flatten(2) @ w[name + "projection.weight"]


def llama(w, words, layers, heads, hidden, activation="silu", kv_heads=0, window=0, **options):
    x = w["words.weight"][words]
    for number in range(1, layers + 1):
        name = f"layer{number}."
        y = F.rms_norm(x, (hidden,), w[name + "rms_norm1.scale"], 1e-5)
        x = x + attended(
            y, w, name, heads, kv_heads or heads, options["rotary_base"], window=window
        )
        y = F.rms_norm(x, (hidden,), w[name + "rms_norm2.scale"], 1e-5)
        gate, up = (y @ w[name + each] for each in ("gate.weight", "up.weight"))
        x = x + (GELU[activation](gate) * up) @ w[name + "down.weight"]
    x = F.rms_norm(x, (hidden,), w["rms_norm1.scale"], 1e-5)
    return x @ (w["words.weight"].T if options.get("tied") else w["logits.weight"])


def mpt(w, words, layers, heads, hidden, **options):
    x, slopes = w["words.weight"][words], 2.0 ** (-8 / heads * torch.arange(1, heads + 1))
    for number in range(1, layers + 1):
        name = f"layer{number}."
        y = F.layer_norm(x, (hidden,), w[name + "layer_norm1.scale"])
        x = x + attended(y, w, name, heads, heads, slopes=slopes)
        y = F.layer_norm(x, (hidden,), w[name + "layer_norm2.scale"])
        x = x + GELU["gelu"](y @ w[name + "expand.weight"]) @ w[name + "contract.weight"]
    return F.layer_norm(x, (hidden,), w["layer_norm1.scale"]) @ w["words.weight"].T


def shapes(family, layers, hidden, heads, vocabulary, **options):
    """Return the shape of each weight by name."""
    kv_heads, size = options.get("kv_heads", heads), options.get("head_size", hidden // heads)
    norm, one = ("rms_norm", options) if family == "llama" else ("layer_norm", {})
    found = {"words.weight": (vocabulary, hidden)}
    for number in range(1, layers + 1):
        name, width = f"layer{number}.", (heads + 2 * kv_heads) * size
        found |= {f"{name}{norm}1.scale": (hidden,), f"{name}qkv.weight": (hidden, width)}
        if one.get("qkv_bias"):
            found[name + "qkv.bias"] = (width,)
        found |= {f"{name}projection.weight": (heads * size, hidden)}
        found |= {f"{name}{norm}2.scale": (hidden,)}
        if family == "llama":
            wide = options["feed_forward"]
            found |= {name + each: (hidden, wide) for each in ("gate.weight", "up.weight")}
            found[name + "down.weight"] = (wide, hidden)
        else:
            found[name + "expand.weight"] = (hidden, 4 * hidden)
            found[name + "contract.weight"] = (4 * hidden, hidden)
    found[f"{norm}1.scale"] = (hidden,)
    if family == "llama" and not options.get("tied"):
        found["logits.weight"] = (hidden, vocabulary)
    return found


for case, (family, options) in json.loads((HERE / "decoders.json").read_text()).items():
    rng = np.random.default_rng(1)
    weights = {
        name: torch.tensor(rng.normal(size=shape) / 3, requires_grad=True)
        for name, shape in shapes(family, **options).items()
    }
    words = rng.integers(options["vocabulary"], size=(BATCH, options["sequence"] + 1))
    logits = {"llama": llama, "mpt": mpt}[family](weights, torch.tensor(words[:, :-1]), **options)
    loss = F.cross_entropy(logits.flatten(0, 1), torch.tensor(words[:, 1:]).flatten())
    loss.backward()
    np.savez_compressed(
        HERE / f"{case}.npz",
        words=words,
        logits=logits.detach().numpy(),
        loss=loss.item(),
        **{f"w.{name}": each.detach().numpy() for name, each in weights.items()},
        **{f"g.{name}": each.grad.numpy() for name, each in weights.items()},
    )
