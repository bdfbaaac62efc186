"""What module 12 asks: the figures and the numbers of lesson.toml."""

from functools import lru_cache
from typing import Any

import numpy as np

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.numeric import Drawn
from lib_dlhpc.explore.language_model import bubbles, experts, here, layout, rollouts, sequences
from lib_dlhpc.explore.language_model.bubbles import ALL, ONE, SCHEDULES, TWO, bubble, fullest
from lib_dlhpc.explore.language_model.bubbles import Setting as Pipe
from lib_dlhpc.explore.language_model.charts import causes
from lib_dlhpc.explore.language_model.rollouts import VERL, apart, best, together
from lib_dlhpc.explore.language_model.rollouts import Setting as Learned
from lib_dlhpc.prediction import predict
from lib_dlhpc.serving.service import lengths
from lib_dlhpc.spec.experiment import load
from lib_dlhpc.spec.strategy import FP8
from lib_dlhpc.spec.units import format_quantity as show

ZB = SCHEDULES[-1]
FAR = sequences.Setting(context=32, nics=1)
FULL = Learned(spread=0.0, samples=32)


def step(found: Any) -> str:
    """Return the time of a predicted step."""
    return show(float(found.step_time), "s")


def memory(found: Any) -> str:
    """Return what a GPU holds."""
    return show(float(found.memory_total), "B")


def cause(found: Any, name: str) -> str:
    """Return the time of one cause of a step."""
    return show(causes(found)[name], "s")


def laid(**changes: Any) -> Any:
    """Return the prediction of Llama 3's layout, changed."""
    return layout.predicted(layout.Setting()._replace(**changes))


def near(**changes: Any) -> Any:
    """Return the prediction of Llama 3's layout, changed, with the stages of a replica side by side in a pod.

    Neither their messages nor the rings of replicas, then outermost, share oversubscribed links enough to slow down.
    Source: Grattafiori et al. 2024, section 3.3.2: ranks in the order tensor, context, pipeline, data.
    """
    run = layout.experiment(layout.Setting()._replace(**changes))
    return predict(run.set({"machine.oversubscription": 1.0}))


def alone(key: str, value: float | str) -> Any:
    """Return the prediction of FSDP without a pipeline, one value of the experiment changed."""
    return predict(layout.experiment(layout.ALONE).set({key: value}))


def logarithmic() -> str:
    """Return the step with gathers in lg p rounds, as NCCL's PAT has them at best.

    Its messages are the shorter the farther they go, so it is priced as if uplinks were not oversubscribed.
    Source: Jeaugey 2025, arXiv:2506.20252.
    """
    wide = {"strategy.allreduce": "halving_doubling", "machine.oversubscription": 1.0}
    return step(predict(layout.experiment(layout.ALONE).set(wide)))


def hops() -> str:
    """Return the latency of a ring over all nodes."""
    run = layout.experiment(layout.ALONE)
    return show((int(run.strategy.nodes) - 1) * float(run.machine.inter_node.latency), "s")


def sent(purpose: str) -> str:
    """Return the bytes that a GPU sends in a step of Llama 3's layout, tensor collectives in its node."""
    own = laid()
    machine = own.experiment.machine
    link = machine.intra_node if purpose == "tensor" else machine.inter_node
    seconds = float(own.messages[purpose].bandwidth)
    return show(round(seconds * float(link.bandwidth * link.efficiency), -9), "B")


def long(**changes: Any) -> sequences.Found:
    """Return the prediction of a sequence over ranks."""
    return sequences.predicted(sequences.Setting()._replace(**changes))


def waits(setting: sequences.Setting) -> str:
    """Return the share of a step that waits for keys and values."""
    return f"{sequences.predicted(setting).exposed:.2%}"


def mixed(**changes: Any) -> Any:
    """Return the prediction of DeepSeek-V3's layout, changed."""
    return experts.predicted(experts.Setting()._replace(**changes))


def piped(**changes: Any) -> str:
    """Return the share of a step that is bubble."""
    return f"{bubble(Pipe()._replace(**changes)):.0%}"


def zb_part() -> str:
    """Return what ZB-H1 leaves of the idle time of 1F1B."""
    one, apart = (predict(bubbles.experiment(Pipe(schedule=each))) for each in (ONE, ZB))
    return f"{float(apart.pipeline_bubble / one.pipeline_bubble):.0%}"


def idle(schedule: str) -> str:
    """Return how long a rank is idle, in closed form."""
    return show(bubbles.closed_forms(Pipe())[schedule].idle, "s")


def held(**changes: Any) -> tuple[int, str]:
    """Return the fullest rank of a pipeline, and what each of its GPUs holds."""
    rank, size = fullest(Pipe()._replace(**changes))
    return rank, show(size, "B")


def computed() -> float:
    """Return the seconds of a step that a GPU computes, or waits for a slower one."""
    return sum(experts.computed(causes(mixed())).values())


def saved_fp8() -> str:
    """Return by which share linear layers in fp8 shorten a step, with the casts of what they read."""
    return f"{1 - float(mixed(matmuls=FP8).step_time / mixed().step_time):.0%}"


@lru_cache(maxsize=1)
def dense_fp8() -> Any:
    """Return the prediction of Llama 3's layout in fp8, as far from the roofline as its run in bf16 was."""
    return predict(layout.base().set({"strategy.precision": FP8}))


def longest() -> int:
    """Return the tokens of the longest answer of an iteration."""
    return int(max(lengths(rollouts.served(Learned(), rollouts.GPUS))[1]))


def generated(**changes: Any) -> str:
    """Return when the last answer of a pool ends."""
    return show(apart(Learned(**changes)).generation.seconds, "s")


def empty(samples: int) -> str:
    """Return the part of generation in which a mean slot of a batch is empty, on all GPUs."""
    return f"{1 - together(Learned(samples=samples)).generation.busy:.0%}"


def own_bubble(draw: np.random.Generator) -> Drawn:
    """Return the pipeline of one learner, and its bubble in percent of the work."""
    stages, chunks = int(draw.choice([4, 8, 16])), int(draw.choice([2, 4, 8]))
    microbatches = stages * int(draw.integers(1, 4))
    own = {"stages": stages, "microbatches": microbatches, "chunks": chunks}
    wrong = {
        "no_chunks": 100 * (stages - 1) / microbatches,
        "of_the_step": 100 * (stages - 1) / (chunks * microbatches + stages - 1),
        "all_stages": 100 * stages / (chunks * microbatches),
    }
    return own, 100 * (stages - 1) / (chunks * microbatches), wrong


def own_mfu(draw: np.random.Generator) -> Drawn:
    """Return the run of one learner, and its MFU in percent."""
    weights, gpus = int(draw.choice([70, 180, 405])), int(draw.choice([1024, 4096, 16384]))
    wanted = float(draw.uniform(0.3, 0.5))
    rate = float(f"{wanted * gpus * 989e12 / (6 * weights * 1e9) / 1e6:.3g}")
    own = {"weights": weights, "gpus": gpus, "rate": rate}
    answer = 100 * 6 * weights * 1e9 * rate * 1e6 / (gpus * 989e12)
    wrong = {
        "forward": answer * 2 / 6,
        "recomputed": answer * 8 / 6,
        "one_flop": answer / 6,
        "one_gpu": answer * gpus,
    }
    return own, answer, wrong


LAID = {
    "step": lambda: step(laid()),
    "mfu": lambda: f"{float(laid().utilization):.0%}",
    "memory": lambda: memory(laid()),
    "gathered": lambda: show(2 * float(layout.base().model.parameters) / 8, "B"),
    "data_alone": lambda: cause(layout.predicted(layout.ALONE), "gradients, weights"),
    "hops": hops,
    "step_matrices": lambda: step(alone("strategy.zero_unit", "layer")),
    "step_pat": logarithmic,
    "step_bytes": lambda: step(alone("machine.inter_node.latency", 0.0)),
    "step_pod": lambda: step(alone("strategy.shards", 128)),
    "tensor_sent": lambda: sent("tensor"),
    "data_sent": lambda: sent("data"),
    "step_1f1b": lambda: step(laid(schedule="1f1b")),
    "bubble_1f1b": lambda: cause(laid(schedule="1f1b"), "pipeline bubble"),
    "bubble_laid": lambda: cause(laid(), "pipeline bubble"),
    "between": lambda: cause(laid(), "stage to stage"),
    "data": lambda: cause(laid(), "gradients, weights"),
    "step_8": lambda: step(laid(pipeline=8)),
    "bubble_laid_8": lambda: cause(laid(pipeline=8), "pipeline bubble"),
    "between_8": lambda: cause(laid(pipeline=8), "stage to stage"),
    "data_8": lambda: cause(laid(pipeline=8), "gradients, weights"),
    "step_near": lambda: step(near()),
    "step_8_near": lambda: step(near(pipeline=8)),
    "memory_8": lambda: memory(laid(pipeline=8)),
    "step_8_zero2_near": lambda: step(near(pipeline=8, zero=2)),
    "memory_8_zero2": lambda: memory(laid(pipeline=8, zero=2)),
    "data_zero3": lambda: cause(laid(zero=3), "gradients, weights"),
    "memory_context": lambda: memory(laid(context=2)),
    "bubble_context": lambda: cause(laid(context=2), "pipeline bubble"),
    "mfu_context": lambda: f"{float(laid(context=2).utilization):.0%}",
    "step_full": lambda: step(laid(recompute="full")),
    "mfu_full": lambda: f"{float(laid(recompute='full').utilization):.0%}",
    "memory_full": lambda: memory(laid(recompute="full")),
}
PIPED = {
    "bubble_one": piped,
    "bubble_two": lambda: piped(schedule=TWO),
    "bubble_all": lambda: piped(schedule=ALL),
    "chunks": layout.LAYERS // Pipe().stages,
    "zb_rank": lambda: held(schedule=ZB)[0],
    "zb_memory": lambda: held(schedule=ZB)[1],
    "one_rank": lambda: held(schedule=ONE)[0],
    "one_memory": lambda: held(schedule=ONE)[1],
    "zb_memory_full": lambda: held(schedule=ZB, recompute="full")[1],
    "zb_part": zb_part,
    "idle_one": lambda: idle("1F1B"),
    "idle_zb": lambda: idle("ZB-H1"),
    "idle_dual": lambda: idle("DualPipe"),
    "bubble_32": lambda: piped(microbatches=32),
    "bubble_8": lambda: piped(microbatches=8),
    "bubble_8_stages": lambda: piped(stages=8),
    "memory_8_stages": lambda: held(stages=8)[1],
}
LONG = {
    "ring_8": lambda: waits(sequences.Setting()),
    "ring_long": lambda: waits(FAR._replace(sequence=2**17)),
    "ring_short": lambda: waits(FAR._replace(sequence=2**16)),
    "ring_8k": lambda: waits(sequences.Setting(2**13)),
    "ring_131k": lambda: waits(sequences.Setting(2**17)),
    "heads_8k": lambda: waits(sequences.Setting(2**13, exchange="heads")),
    "heads_131k": lambda: waits(sequences.Setting(2**17, exchange="heads")),
    "long_8": lambda: show(long(sequence=2**17).held, "B"),
    "long_16": lambda: show(long(sequence=2**17, context=16).held, "B"),
    "long_full": lambda: show(long(sequence=2**17, recompute="full").held, "B"),
    "long_16_time": lambda: show(long(sequence=2**17, context=16).seconds, "s"),
    "long_full_time": lambda: show(long(sequence=2**17, recompute="full").seconds, "s"),
}
MIXED = {
    "computed": lambda: show(computed(), "s"),
    "all_to_all": lambda: cause(mixed(), "experts' all-to-all"),
    "published": lambda: show(experts.published_step(), "s"),
    "replayed": lambda: step(predict(load("deepseek-v3-2048-h800"))),
    "step_experts": lambda: step(mixed()),
    "step_experts_8": lambda: step(mixed(experts=8)),
    "memory_experts_8": lambda: memory(mixed(experts=8)),
    "expert_replicas": lambda: experts.replicas(experts.Setting(experts=8)),
    "memory_zero1": lambda: memory(experts.with_zero1(experts.Setting(experts=8))),
    "step_zero1": lambda: step(experts.with_zero1(experts.Setting(experts=8))),
    "step_deep": lambda: step(mixed(experts=8, pipeline=32)),
    "memory_deep": lambda: memory(mixed(experts=8, pipeline=32)),
    "step_uneven": lambda: step(mixed(busiest=1.5)),
    "saved_fp8": saved_fp8,
    "step_dense": lambda: step(laid()),
    "step_dense_fp8": lambda: step(dense_fp8()),
    "memory_dense": lambda: memory(laid()),
    "memory_dense_fp8": lambda: memory(dense_fp8()),
    "arithmetic_share": lambda: f"{computed() / float(mixed().step_time):.0%}",
    "step_kept": lambda: step(mixed(recompute="none")),
    "memory_kept": lambda: memory(mixed(recompute="none")),
    "all_to_all_kept": lambda: cause(mixed(recompute="none"), "experts' all-to-all"),
    "step_one_nic": lambda: step(mixed(nics=1)),
}
TAILS = {
    "rl_prompts": rollouts.PROMPTS,
    "rl_answers": rollouts.samples(Learned()),
    "rl_longest": lambda: f"{longest():,}",
    "rl_step": lambda: show(together(Learned()).seconds, "s"),
    "rl_writing": lambda: show(together(Learned()).generation.seconds, "s"),
    "rl_alone": lambda: show(rollouts.prices().answers(1, rollouts.PROMPT, longest()).total, "s"),
    "rl_tail": lambda: show(together(Learned()).generation.tail, "s"),
    "rl_four": lambda: generated(pool=4),
    "rl_twelve": lambda: generated(pool=12),
    "rl_turn": lambda: show(apart(Learned()).seconds, "s"),
    "rl_behind": lambda: show(rollouts.behind(Learned()).seconds, "s"),
    "rl_best": lambda: rollouts.split(Learned(pool=best(Learned())[0])),
    "rl_best_step": lambda: show(best(Learned())[1], "s"),
    "rl_train_32": lambda: show(apart(FULL).training, "s"),
    "rl_make_32": lambda: show(apart(FULL).generation.seconds, "s"),
    "rl_best_32": lambda: rollouts.split(FULL._replace(pool=best(FULL)[0])),
    "rl_best_step_32": lambda: show(best(FULL)[1], "s"),
    "rl_step_32": lambda: show(together(FULL).seconds, "s"),
    "rl_empty_32": lambda: empty(32),
    "rl_empty_8": lambda: empty(8),
    "verl_behind": VERL["behind"],
    "verl_formula": lambda: f"{rollouts.published():.0f}",
    "verl_share": lambda: f"{VERL['generation'] / VERL['in turn']:.0%}",
}
lesson = Lesson.read(
    __file__,
    outcomes={
        "fsdp_alone": (lambda: float(layout.predicted(layout.ALONE).step_time), layout.the_layout),
        "zero_bubble": (lambda: 100 * bubble(Pipe(schedule=ZB)), bubbles.the_bubble),
        "far_ring": (lambda: 100 * sequences.predicted(FAR).exposed, sequences.the_sequence),
        "waited_for": (lambda: float(mixed().step_time), experts.the_experts),
        "equal_lengths": (lambda: rollouts.even(Learned()).seconds, rollouts.post_training),
        "ring_here": (lambda: here.times_as_fast(here.Setting()), here.layouts_here),
    },
    numbers={**LAID, **PIPED, **LONG, **MIXED, **TAILS},
    draws={"own_bubble": own_bubble, "own_mfu": own_mfu},
)
ask = lesson.ask
