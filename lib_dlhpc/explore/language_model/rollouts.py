"""Post-training by reinforcement learning on 16 GPUs: one iteration, synchronous or one step behind."""

from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np

from lib_dlhpc.explore.blocks.bars import stacks
from lib_dlhpc.explore.blocks.bench import Slider, View, on_bench
from lib_dlhpc.explore.blocks.charts import Data, State
from lib_dlhpc.explore.serving.served import service
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.results.palette import BACKWARD, BUBBLE, COLLECTIVES, FORWARD, IDLE, UPDATE
from lib_dlhpc.serving import Generation, Iteration, Prices, Service, generate, predict_iteration
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show

MODEL, MACHINE, GPUS, NODES = "llama3-8b", "h100-pod", 16, 2
PROMPTS, PROMPT, BATCH, SEED = 32, 512, 256, 4
POOLS = (2, 4, 6, 8, 10, 12)  # half of them in each node
ANSWERS = (512, 1024, 2048, 4096, 8192)
SPREADS = (0.0, 0.25, 0.5, 1.0)
SAMPLES = (8, 16, 32)
GENERATION, TAIL, SCORE = "generation", "empty slots", "score"
LEARN, SENT, WAIT = "update", "weights sent", "waits for the other pool"
HATCHED = (TAIL, WAIT)
PARTS = {
    GENERATION: BACKWARD,
    TAIL: IDLE,
    SCORE: FORWARD,
    LEARN: UPDATE,
    SENT: COLLECTIVES,
    WAIT: BUBBLE,
}
# verl, docs/advance/one_step_off.md at e55d143, FSDP2: s of an iteration of DAPO, Qwen2.5-Math-7B. In turn on all GPUs,
# of which generation; then one step behind, and there generation on 4 GPUs, score and update on 12.
VERL = {"in turn": 749, "generation": 321, "behind": 520, "pool": 458, "score": 108, "update": 337}


class Setting(NamedTuple):
    """Llama 3 8B on 16 H100, 32 prompts of 512 tokens. pool: GPUs that generate, where two pools do the work."""

    pool: Annotated[int, Slider("GPUs that generate", "Of 16; the others train", POOLS)] = 8
    answer: Annotated[int, Slider("Answer", "Tokens, mean", ANSWERS)] = 2048
    spread: Annotated[
        float, Slider("Spread", "Standard deviation of the length over its mean", SPREADS)
    ] = 0.5
    samples: Annotated[int, Slider("Samples", "Answers to each of 32 prompts", SAMPLES)] = 16


@on_bench(Setting(), "llm_rollout", "llm_flight", fine="")
def post_training(setting: Setting) -> View:
    """Look for what grows with the spread of the lengths, and for which pool waits for the other."""
    one, two = together(setting), apart(setting)
    late, made = behind(setting), one.generation
    words = (
        f"<b>An iteration takes {show(one.seconds, 's')} if all {GPUS} GPUs generate, then train,</b>"
        f" {show(made.seconds, 's')} of it generation: a mean slot of a batch is empty for"
        f" {show(made.tail, 's')}. {split(setting)} GPUs take {show(two.seconds, 's')} in turn, and"
        f" {show(late.seconds, 's')} one step behind, where a sample is one update old."
    )
    charts = {"llm_rollout": parts_state(setting), "llm_flight": flight_state(setting)}
    times = one.seconds / late.seconds
    fine = f"One step behind is {times:.2f} times as fast as all GPUs in turn."
    return View(words, wall_of(setting), charts, fine)


def wall_of(setting: Setting) -> str:
    """Say why two pools are no gain, or nothing."""
    one, two = together(setting), apart(setting)
    if not (step := update(setting, GPUS - setting.pool)).fits:
        return " ".join(step.walls)
    if behind(setting).seconds <= one.seconds:
        return ""
    made, train = two.generation.seconds, two.training
    slow, quick = ("training", "generation") if train > made else ("generation", "training")
    return (
        f"Balance: {slow} takes {show(max(made, train), 's')}, {quick} {show(min(made, train), 's')}. Even one step"
        " behind, two pools are slower than all GPUs in turn."
    )


def split(setting: Setting) -> str:
    """Return the two pools in words."""
    return f"{setting.pool} + {GPUS - setting.pool}"


def samples(setting: Setting) -> int:
    """Return the answers of an iteration."""
    return PROMPTS * setting.samples


def served(setting: Setting, gpus: int) -> Service:
    """Return the service that generates, a replica on each GPU."""
    load = {"rate": 0.0, "prompt": PROMPT, "answer": setting.answer, "count": samples(setting)}
    load |= {"answer_spread": setting.spread, "seed": SEED}
    return service(MODEL, MACHINE, load, replicas=gpus, batch=BATCH)


@lru_cache(maxsize=1)
def prices() -> Prices:
    """Return the prices of a step of a replica, the same in all settings."""
    return Prices(served(Setting(), GPUS))


@lru_cache(maxsize=128)
def update(setting: Setting, gpus: int) -> Breakdown:
    """Return the step that learns from all samples, each of the mean length; FSDP, all activations recomputed."""
    each = -(-samples(setting) // gpus)
    strategy: dict[str, Any] = {"nodes": NODES, "devices_per_node": gpus // NODES, "zero": 3}
    strategy |= {"batch": each, "microbatches": each, "recompute": "full"}
    strategy |= {"precision": "bf16", "optimizer": "adam"}
    return predict(
        Experiment(
            model={"name": MODEL, "sequence": PROMPT + setting.answer},
            dataset={"name": "webtext", "samples": samples(setting)},
            machine={"name": MACHINE},
            strategy=strategy,
        )
    )


@lru_cache(maxsize=64)
def _iteration(setting: Setting, generating: int, training: int) -> Iteration:
    learning = update(setting, training)
    return predict_iteration(served(setting, generating), learning, GPUS, prices())


def together(setting: Setting) -> Iteration:
    """Return the iteration of all GPUs, which generate and then train."""
    return _iteration(setting._replace(pool=POOLS[0]), GPUS, GPUS)


def apart(setting: Setting) -> Iteration:
    """Return the iteration of two pools, synchronous."""
    return _iteration(setting, setting.pool, GPUS - setting.pool)


def behind(setting: Setting) -> Iteration:
    """Return the iteration of two pools, one step behind."""
    return apart(setting)._replace(behind=True)


def best(setting: Setting) -> tuple[int, float]:
    """Return the GPUs that generate in the fastest iteration one step behind, and its s."""
    every = {each: behind(setting._replace(pool=each)).seconds for each in POOLS}
    pool = min(every, key=lambda each: every[each])
    return pool, every[pool]


def even(setting: Setting) -> Generation:
    """Return the generation of all GPUs if each answer has the mean length."""
    return generate(served(setting._replace(spread=0.0), GPUS), prices())


def rows(setting: Setting) -> dict[str, dict[str, float]]:
    """Return what the GPUs of each way do in an iteration, s."""
    one, two = together(setting), apart(setting)
    found = {f"all {GPUS} in turn": {**writing(one), **learning(one), SENT: one.transfer}}
    for way, each in (("in turn", two), ("behind", behind(setting))):
        for words, parts in (
            (f"{way}: {setting.pool} generate", writing(each)),
            (f"{way}: {GPUS - setting.pool} train", learning(each)),
        ):
            rest = each.seconds - sum(parts.values()) - each.transfer
            found[words] = {**parts, SENT: each.transfer, WAIT: round(max(0.0, rest), 9)}
    return found


def writing(each: Iteration) -> dict[str, float]:
    """Return the seconds of the GPUs that generate, by part."""
    made = each.generation
    return {GENERATION: made.seconds - made.tail, TAIL: made.tail}


def learning(each: Iteration) -> dict[str, float]:
    """Return the seconds of the GPUs that train, by part."""
    return {SCORE: each.score, LEARN: each.update}


def parts_state(setting: Setting) -> State:
    """Return the parts of an iteration for each way and pool."""
    found = rows(setting)
    data = stacks(found, PARTS, "s")
    parts = ", ".join(
        f"{part} {show(size, 's')}" for part, size in next(iter(found.values())).items()
    )
    each = "; ".join(
        f"{row} {words}" for row, words in zip(found, data["sums"]["words"], strict=True)
    )
    return data, f"An iteration, by GPUs: {each}. Of the first: {parts}."


def flight_state(setting: Setting) -> State:
    """Return over time how many answers have not ended, on all GPUs and on those of the pool."""
    data, said = Data(), []
    for name, each in (("all", together(setting)), ("pool", apart(setting))):
        ends = np.sort(each.generation.ends)
        data[name] = {"x": [0.0, *ends.tolist()], "y": [*range(len(ends), 0, -1), 0]}
        half, last = (float(ends[at]) for at in (len(ends) // 2, -1))
        said.append(f"half after {show(half, 's')}, all after {show(last, 's')}")
    pool = f"on {setting.pool} GPUs: {said[1]}"
    return data, f"{samples(setting)} answers end, on all {GPUS} GPUs: {said[0]}; {pool}."


def published() -> float:
    """Return the s of verl's iteration one step behind, by the formula from its own parts."""
    made = Generation(VERL["pool"], 1.0, np.zeros(0), 0)
    own = Iteration(made, VERL["score"], VERL["update"], transfer=0.0, behind=True)
    return own.seconds
