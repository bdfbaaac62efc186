"""Derivation of module 12: from which length on a ring of context ranks hides its messages."""

from lib_dlhpc.explore.language_model.sequences import Setting, experiment
from lib_dlhpc.explore.slides.derivation import Derivation, Step
from lib_dlhpc.prediction import predict

RATE, NIC = 400e12, 50e9  # FLOP/s that a GPU reaches, B/s
setting = Setting(context=8)
run = experiment(setting)
attention = next(layer for layer in run.model.layers if layer.kind == "fused_attention")
LAYERS = sum(layer.kind == "fused_attention" for layer in run.model.layers)
width = attention.output_shape[1]
keys = (attention.input_shape[1] - width) // 2
block = setting.sequence // setting.context  # tokens
least = 2 * keys / width * RATE / NIC


def flop_over_bytes() -> float:
    """Return the FLOP of a block, half of it masked, over the bytes that travel meanwhile, as predicted."""
    ranks, link = setting.context, run.machine.intra_node
    seconds = float(predict(run).messages["context"].bandwidth)
    hops = 2 * (ranks - 1) + ranks  # of keys and values in both passes, and of their gradients
    each = LAYERS * float(run.strategy.microbatches) * hops
    sent = seconds * link.bandwidth * link.efficiency / each
    return float(attention.forward_flop / ranks**2 / 2 / sent)


DERIVATIONS = [
    Derivation(
        "Derivation: when a ring of keys is hidden",
        [
            Step(
                r"\frac{1}{2} \cdot 4 \Big(\frac{s}{c}\Big)^2 h = 2 \Big(\frac{s}{c}\Big)^2 h",
                "FLOP of a block: s/c queries meet s/c keys, in two products. Half is masked.",
            ),
            Step(
                r"2 \cdot 2\,\frac{s}{c}\,h_{kv} = 4\,\frac{s}{c}\,h_{kv}",
                "Bytes of the next block, keys and values in 16 bits, which arrive meanwhile.",
            ),
            Step(
                r"\frac{2\,(s/c)^2\,h}{F} > \frac{4\,(s/c)\,h_{kv}}{W}",
                "Hidden if the block computes for longer than the next one travels.",
            ),
            Step(
                r"\frac{s}{c} > \frac{2\,h_{kv}}{h} \cdot \frac{F}{W}",
                "Divide by s/c: work grows with its square, messages in proportion.",
            ),
        ],
        f"Llama 3 8B, {keys:,} of {width:,} columns in keys, {RATE / 1e12:.0f} TFLOP/s, {NIC / 1e9:.0f} GB/s: blocks of"
        f" {least:,.0f} tokens, so {8 * least:,.0f} on 8 ranks.",
        "s: tokens of a sequence, c: ranks that share it, h: width of all heads, F: FLOP/s that one reaches, W: bytes"
        " a second. Ask before the last line: does a longer sequence make it harder or easier to hide? Easier, which"
        " surprises most. What do grouped queries change? Keys are narrower than queries, here by a factor of four."
        " Latency is left out: c - 1 messages per layer.",
        block * width / (2 * keys),
        flop_over_bytes(),
    )
]
