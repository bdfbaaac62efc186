"""Derivation of module 12: from which length on a ring of context ranks hides its messages."""

from lib_dlhpc.explore.language_model.sequences import Setting, experiment
from lib_dlhpc.explore.slides.derivation import written
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


together = 8 * least

DERIVATIONS = written(globals(), (block * width / (2 * keys), flop_over_bytes()))
