"""Derivations of module 08: 16 bytes per weight and what ZeRO leaves, and how fast a host link must be."""

from lib_dlhpc.explore.memory_wall import outside
from lib_dlhpc.explore.memory_wall.ways import Setting, experiment
from lib_dlhpc.explore.slides.derivation import Derivation, Step
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.units import format_quantity as show

STATE = ("weights", "master weights", "gradients", "optimizer state")
setting = Setting()
N = float(experiment(setting).model.parameters)
RANKS = setting.gpus
levels = [16 * N, (4 + 12 / RANKS) * N, (2 + 14 / RANKS) * N, 16 * N / RANKS]
alone = outside.Setting()
link = outside.needed(alone)
forward = float(predict(outside.experiment(alone)).forward)
least = link.moved / 2 / forward


def held(zero: int) -> float:
    """Return the bytes of weights, gradients and optimizer state of a GPU, as predicted."""
    memory = predict(experiment(setting, zero=zero)).memory
    return sum(float(memory[name]) for name in STATE)


DERIVATIONS = [
    Derivation(
        "Derivation: 16 bytes per weight, and ZeRO",
        [
            Step(r"2 + 2", "Bytes of a weight and its gradient in 16 bits."),
            Step(
                r"4 + 4 + 4 = 12",
                "The optimizer, in fp32: a copy of the weight, and Adam's two moments.",
            ),
            Step(
                r"M = (2 + 2 + 12)\,n = 16\,n",
                "With data parallelism, each of N replicas has all of it.",
            ),
            Step(
                r"M_1 = \Big(4 + \frac{12}{N}\Big)\,n, \quad M_2 = \Big(2 + \frac{14}{N}\Big)\,n",
                "ZeRO 1 shards the optimizer state, ZeRO 2 gradients too: each rank updates only its shard.",
            ),
            Step(
                r"M_3 = \frac{16\,n}{N}",
                "ZeRO 3 shards the weights as well, and gathers those of a layer before it computes.",
            ),
        ],
        f"{N / 1e9:.2f} G weights, {RANKS} GPUs: {', '.join(show(each, 'B') for each in levels)} with ZeRO 0 to 3."
        " Activations come on top.",
        "Ask before the third line how much memory 1.5 billion weights take in training; most say 3 GB. What is the"
        " price? ZeRO 1 and 2 send what an allreduce sends, reduce-scatter and all-gather; ZeRO 3 gathers the weights"
        " once more, for backward, so 3 n instead of 2 n, and that for each microbatch.",
        sum(levels),
        sum(held(zero) for zero in range(4)),
    ),
    Derivation(
        "Derivation: how fast the host link must be",
        [
            Step(
                r"t_{\text{link}} = \frac{D}{B_{\text{link}}}",
                "D bytes of activations leave the GPU during forward.",
            ),
            Step(
                r"\frac{D}{B_{\text{link}}} \le t_f \;\Rightarrow\; B_{\text{link}} \ge \frac{D}{t_f}",
                "It is hidden if it takes no longer than the forward pass.",
            ),
            Step(
                r"\frac{D}{t_f} = \frac{b\,a}{b\,f / F} = \frac{a}{f}\,F",
                "Of b samples with a bytes and f FLOP each, at F FLOP/s. The batch cancels.",
            ),
            Step(
                r"\frac{D}{B_{\text{link}}} - t_f < t_f \;\Rightarrow\; B_{\text{link}} > \frac{D}{2\,t_f}",
                "Full recomputation costs a second forward pass. Offloading wins from half of that bandwidth on.",
            ),
        ],
        f"GPT-2 of 1.5 G weights, batch {alone.batch}: {show(link.moved / 2, 'B')} in {show(forward, 's')} are"
        f" {show(least, 'B/s')}; from about {show(least / 2, 'B/s')} on, offloading beats recomputation.",
        "Ask before the third line: you double the batch, must the link be faster? Most say yes. Weights and optimizer"
        " state are different: their bytes stay, so a larger batch hides them. Backward fetches the same bytes in"
        " about twice the time. Eight GPUs that share the link of one host need eight times as much.",
        least,
        link.required,
    ),
]
