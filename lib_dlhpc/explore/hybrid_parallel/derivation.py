"""Derivations of module 05: the activations of a transformer layer, on one GPU and on several."""

from typing import Any

from lib_dlhpc.explore.slides.derivation import Derivation, Step
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import read_experiment
from lib_dlhpc.spec.units import format_quantity as show

S, B, H, A, T = 2048, 1, 12288, 96, 8  # a layer of GPT-3, over the GPUs of a node
scores = 5 * A * S / H
whole = S * B * H * (34 + scores)
replicated = S * B * H * (10 + 24 / T + scores / T)
sharded = whole / T


def stored(**strategy: Any) -> float:
    """Return the bytes that a layer adds to the activations of a GPU, as predicted."""

    def activations(layers: int) -> float:
        network = {"family": "gpt", "layers": layers, "hidden": H, "heads": A, "sequence": S}
        how = {"nodes": 1, "batch": B, "precision": "fp16", "fused_attention": "off"}
        run = {
            "model": network | {"vocabulary": 51200, "dropout": 0.1},
            "dataset": "webtext",
            "machine": "selene",
            "strategy": how | strategy,
        }
        return float(predict(read_experiment(run)).memory["activations"])

    return activations(4) - activations(3)


DERIVATIONS = [
    Derivation(
        "Derivation: activations of a transformer layer",
        [
            Step(
                r"(2 + 4 + 2 + 2 + 1)\,sbh = 11\,sbh",
                "Attention, bytes in fp16: its input; Q and K; V; the input of its projection; a dropout mask.",
            ),
            Step(
                r"(2 + 1 + 2)\,a s^2 b = 5\,a s^2 b",
                "Scores of a heads, s × s each: softmax, dropout mask, what is left after dropout.",
            ),
            Step(
                r"(2 + 8 + 8 + 1)\,sbh = 19\,sbh",
                "MLP: its input; before and after GELU, four times as wide; a dropout mask.",
            ),
            Step(r"(2 + 2)\,sbh = 4\,sbh", "The inputs of two layer norms."),
            Step(
                r"A = sbh\,\Big(34 + 5\,\frac{a s}{h}\Big)",
                "The sum. Only the scores grow with the square of the sequence.",
            ),
        ],
        f"A layer of GPT-3, one sequence: {show(whole, 'B')}, of which scores are {scores / (34 + scores):.0%}. Its"
        f" weights take {show(2 * 12 * H**2, 'B')}.",
        "s: tokens, b: sequences, h: width, a: heads. Hand out the block diagram and let pairs list what backward"
        " reads before the first line. Most list outputs; backward needs the inputs of products. Ask after the sum:"
        " which term does FlashAttention remove? The second, since it recomputes the scores (Korthikanti et al. 2022,"
        " section 4).",
        whole,
        stored(),
    ),
    Derivation(
        "Derivation: the same layer on t GPUs",
        [
            Step(
                r"\frac{(8 + 16)\,sbh + 5\,a s^2 b}{t}",
                "Between two products each GPU has its heads and columns: Q, K, V, scores, GELU.",
            ),
            Step(
                r"(2 + 1 + 2 + 1 + 4)\,sbh = 10\,sbh",
                "On every GPU: the inputs of attention and MLP, two masks, the inputs of the layer norms.",
            ),
            Step(
                r"A_t = sbh\,\Big(10 + \frac{24}{t} + 5\,\frac{a s}{h\,t}\Big)",
                "The sum: tensor parallelism leaves 10 sbh, however many GPUs.",
            ),
            Step(
                r"A_{t,\text{seq}} = \frac{sbh}{t}\,\Big(34 + 5\,\frac{a s}{h}\Big)",
                "Sequence parallelism shards those by position: norms and dropout work on single tokens.",
            ),
        ],
        f"GPT-3, t = {T}: {show(whole, 'B')} become {show(replicated, 'B')}, and {show(sharded, 'B')} with sequence"
        " parallelism.",
        "Ask before the second line: which tensors have all columns on each GPU? Those that an allreduce just made."
        " Sequence parallelism replaces that allreduce by a reduce-scatter and an all-gather: the same bytes, so it"
        " costs no more. Check the library's number on the page with a network of one more layer.",
        replicated + sharded,
        stored(tensor=T) + stored(tensor=T, sequence_parallel=True),
    ),
]
