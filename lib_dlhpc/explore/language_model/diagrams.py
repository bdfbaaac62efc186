"""Diagrams of the slides of module 12: kinds of parallelism, a pipeline, a ring, experts, rollouts, 4 bits."""

from itertools import product

from lib_dlhpc.explore.language_model import experts, here, rollouts
from lib_dlhpc.explore.language_model.layout import Setting, experiment
from lib_dlhpc.explore.slides import diagram as kit
from lib_dlhpc.explore.slides.parts import of_steps, stacked
from lib_dlhpc.layers import expected_places
from lib_dlhpc.layout import own_tokens, sizes, stride
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.validation.published import row_of, value_of
from lib_dlhpc.prediction.validation.validate import experiment_of
from lib_dlhpc.schedules import PIPELINES, timetable
from lib_dlhpc.spec.units import count

KINDS = {
    "tensor": "each layer",
    "context": "a sequence",
    "pipeline": "the layers",
    "data": "the batch",
}
# Bits of a value, and its share of the scale of its block: OCP Microscaling Formats 1.0; arXiv:2509.25149.
BITS = {"bf16": (16, 0.0), "MXFP8": (8, 8 / 32), "NVFP4": (4, 8 / 16)}
MXFP8, NVFP4 = (f"bridge-llama3-405b-gb200-{name}-256" for name in ("mxfp8", "nvfp4"))
SEQUENCES, TOKENS, GPUS = 1536, 8192, 256  # of a step of both
PER_NODE, LENGTH, RANKS, STAGES, MICROBATCHES = 8, 131_072, 4, 4, 6


def kinds() -> kit.Diagram:
    """Return what each of the four kinds divides, over how many ranks, and how far apart these are."""
    run, own = experiment(Setting()), Setting()
    size = sizes(run)
    ranks = {
        "tensor": size.tensor,
        "context": own.context,
        "pipeline": size.pipeline,
        "data": size.data // own.context,
    }
    apart = {kind: stride(run, kind) for kind in ("tensor", "pipeline", "data")}
    where = {
        kind: "one node"
        if apart.get(kind, 0) * ranks[kind] <= PER_NODE
        else f"{count(apart[kind] // PER_NODE, 'node')} apart"
        for kind in ("tensor", "pipeline", "data")
    }
    rows = [
        kit.Row("divides", list(KINDS.values())),
        kit.Row("Llama 3, 8,192 tokens", [f"{ranks[kind]}" for kind in KINDS], kit.GREEN),
        kit.Row(
            "ranks here are", [where.get(kind, "for long sequences") for kind in KINDS], kit.ORANGE
        ),
    ]
    return kit.held(list(KINDS), rows)


def idle() -> kit.Diagram:
    """Return 1F1B on four stages: white is bubble."""
    spans = timetable(PIPELINES["1f1b"](STAGES, MICROBATCHES))
    return kit.lanes(
        kit.passes(spans),
        f"time; {MICROBATCHES} microbatches, light: forward, dark: backward",
        unfolds=True,
    )


def ring() -> kit.Diagram:
    """Return the tokens of four ranks that share a sequence, and where keys and values travel."""
    names = []
    for rank in range(RANKS):
        early, late = own_tokens(LENGTH, RANKS, rank, "ring")
        part = LENGTH // (2 * RANKS)
        names.append(f"rank {rank}: {early[0] // part + 1} and {late[0] // part + 1}")
    links = [(names[rank], names[(rank + 1) % RANKS]) for rank in range(RANKS)]
    said = f"each has two of {2 * RANKS} parts; keys and values travel"
    words = [kit.Shape(0.36, 0.29, 0.28, 0.38, said)]
    return kit.linked(kit.circle(names, across=0.72, wide=0.25), links, words)


def travel() -> kit.Diagram:
    """Return the all-to-all between ranks with tokens and ranks with experts."""
    many, each = experts.Setting().experts, 256 // experts.Setting().experts
    shown = (0, 1, 2, many - 1)
    own = [f"rank {rank}: experts\n{rank * each} to {(rank + 1) * each - 1}" for rank in shown]
    tokens = kit.across((f"rank {rank}\nits tokens" for rank in shown), 0.14, high=0.26)
    held_by = kit.across(own, 0.84, kit.VIOLET, wide=0.235, high=0.3)
    return kit.linked(tokens | held_by, list(product(tokens, held_by)), both=True)


def copies_sent() -> dict[str, float]:
    """Return how many copies of a token a rank sends to the experts of a layer of DeepSeek-V3, in three ways."""
    own = experts.Setting()
    layer = next(
        each for each in experts.predicted(own).experiment.model.layers if each.has_experts
    )
    options = layer.attributes
    names = ("experts", "chosen", "groups", "chosen_groups")
    router = [options[name] for name in names]
    return {
        "to each expert": float(options["chosen"]),
        "to each device": expected_places(*router, places=own.experts),
        "to each node": expected_places(*router, places=own.experts // PER_NODE),
    }


def copied() -> kit.Diagram:
    """Return the copies of a token as lengths."""
    own, sent = experts.Setting(), copies_sent()
    rows = [
        kit.Lane(f"{name}\n{many:.1f}", [kit.Bar(0, many, "", fill)])
        for (name, many), fill in zip(
            sent.items(), (kit.ORANGE, kit.VIOLET, kit.GREEN), strict=True
        )
    ]
    words = "; ".join(f"{name}: {many:.1f} copies" for name, many in sent.items())
    axis = f"copies of a token, {own.experts} ranks in {own.experts // PER_NODE} nodes"
    return kit.lanes(rows, axis)._replace(words=f"{words}; {axis}")


def bits() -> kit.Diagram:
    """Return the bits of a value in three formats, with its share of a scale."""
    rows = {name: {"value": each, "scale": scale} for name, (each, scale) in BITS.items()}
    return stacked(rows, {"value": kit.GREEN, "scale": kit.ORANGE}, "bit", "bits of a value")


def four_bits() -> dict[str, dict[str, float]]:
    """Return the s of Llama 3.1 405B's step in MXFP8 and in NVFP4, as published and as predicted from that in MXFP8.

    The prediction is what matmuls twice as fast leave, and what casts of NVFP4 add, with no block in bf16.
    """
    run = experiment_of(*row_of(MXFP8))
    twice = run.set(
        {
            "machine.device.peak.fp8": 2 * run.machine.device.peak["fp8"],
            "calibration.compute_scale": run.calibration.compute_scale,  # else dropped
        }
    )
    whole = run.set({"strategy.precision": "nvfp4-all"})
    wide, narrow = (SEQUENCES * TOKENS / GPUS / value_of(each) for each in (MXFP8, NVFP4))
    scale = wide / float(predict(run).step_time)
    least, predicted = (scale * float(predict(each).step_time) for each in (twice, whole))
    return {
        "MXFP8, published": {"step": wide},
        "NVFP4, predicted": {"matmuls twice as fast": least, "casts": predicted - least},
        "NVFP4, published": {"step": narrow},
    }


def gained() -> kit.Diagram:
    """Return these steps as lengths."""
    axis = "time of a step of Llama 3.1 405B on 256 GB200"
    fills = {"step": kit.GREEN, "matmuls twice as fast": kit.GREEN, "casts": kit.ORANGE}
    return stacked(four_bits(), fills, "s", axis, side=0.26)


def iterations() -> kit.Diagram:
    """Return two iterations in turn on all GPUs, and one step behind on two pools."""
    one, late = rollouts.together(rollouts.Setting()), rollouts.behind(rollouts.Setting())
    made = one.generation.seconds
    turns = kit.in_turn(
        part
        for k in (1, 2)
        for part in (
            (f"generate {k}", made, kit.GREEN),
            (f"train {k}", one.seconds - made, kit.ORANGE),
        )
    )
    write = kit.in_turn((f"generate {k}", late.seconds, kit.GREEN) for k in (1, 2))
    learn = [
        kit.Bar(k * late.seconds, k * late.seconds + late.training, f"train {k}", kit.ORANGE)
        for k in (1, 2)
    ]
    rows = [
        kit.Lane("all 16 GPUs", turns),
        kit.Lane("8 generate", write),
        kit.Lane("8 train", learn),
    ]
    return kit.lanes(rows, "time; as predicted", side=0.2, unfolds=True)


def small_ring() -> kit.Diagram:
    """Return a step of a small Llama on one rank, and on four that share each sequence in a ring."""
    own = here.Setting()
    steps = {"1 rank": own.alone, f"ring of {own.ranks}": own}
    return of_steps({name: predict(here.experiment(each)) for name, each in steps.items()})


DIAGRAMS = {
    "How do 16,000 GPUs train one network?": kinds,
    "How much of a pipeline is bubble?": idle,
    "Who waits for keys and values?": ring,
    "Where do tokens travel?": travel,
    "What does reinforcement learning wait for?": iterations,
    "copies": copied,
    "bits": bits,
    "four bits": gained,
    "ring_here: answer": small_ring,
}
