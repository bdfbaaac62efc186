"""A network that is split, opened: stages, messages by what they are for, the bubble, what is made again, memory."""

from lib_dlhpc.costs.buckets import buckets
from lib_dlhpc.costs.compute import BYTES
from lib_dlhpc.costs.groups import group_network
from lib_dlhpc.layout import parts, sizes, stage_ends
from lib_dlhpc.prediction.breakdown import Breakdown
from lib_dlhpc.prediction.explanation import Explanation, link_inputs, source_of
from lib_dlhpc.prediction.pipelined import in_flight
from lib_dlhpc.schedules.choice import chosen
from lib_dlhpc.spec.strategy import AUTO
from lib_dlhpc.spec.units import format_quantity as show

BUBBLES = {
    "gpipe": "Σ f + (m-1) max f, and the same backward; with equal stages a bubble of (p-1)/m of the work",
    "1f1b": "Σ c + (m-1) max c, with c = f + b of each rank; with equal stages a bubble of (p-1)/m of the work",
    "interleaved": "m max c + (Σ c - max c)/v; with equal stages a bubble of (p-1)/(v m) of the work",
}
CLOSE = {  # to the longest path through the schedule, each link between two stages carrying a message at a time
    "gpipe": "Exact.",
    "1f1b": "Exact for equal stages and free messages, else within 15 %.",
    "interleaved": "Exact for equal stages and free messages, within 15 % where messages hide behind passes, and up"
    " to 70 % too long where they do not.",
}
FORMULAS = {
    "tensor": "each allreduce, allgather or reduce-scatter of t ranks by the algorithm that is the cheapest for its"
    " size and network: at least 2 (t-1)/t n β + (t-1)/t n γ for an allreduce, half of it for the others; forward,"
    " backward, and again where forward is made again",
    "experts": "two exchanges of everyone with everyone for each layer of experts and pass, by the algorithm that is"
    " the cheapest for its size and network: at least (e-1)/e n β, n being the positions times the experts that each"
    " takes",
    "halo": "for each layer α + n β, n being the rows that a rank borrows or lends, the more of the two",
    "pipeline": "for each microbatch and boundary α + n β forward and backward; what is late of it is exposed",
    "data": "gradients of the rank's own layers by the allreduce; ZeRO 1 and 2: 2 (d-1)/d n β, ZeRO 3: 3 (d-1)/d n β"
    " a microbatch; each bucket or layer by the algorithm that is named, or the cheapest for its size and network",
    "offload": "max(out / bandwidth, in / bandwidth) beside each pass; the update's beside the rest of the last"
    " backward pass and the update; what takes longer is exposed",
}
SOURCES = {
    "tensor": "Shoeybi et al. 2019 (Megatron-LM); Korthikanti et al. 2022 (sequence parallelism)",
    "experts": "Lepikhin et al. 2020 (GShard); Fedus et al. 2022 (Switch transformers)",
    "halo": "Dryden et al. 2019",
    "pipeline": "Huang et al. 2019 (GPipe); Narayanan et al. 2021",
    "data": "Li et al. 2020 (PyTorch Distributed); Rajbhandari et al. 2020 (ZeRO)",
    "offload": "Awan et al. 2018 (OC-DNN); Rajbhandari et al. 2021 (ZeRO-Infinity)",
}


def explain_split(p: Breakdown) -> list[Explanation]:
    """Return what is particular to a scalar prediction of a split network, in the order of a step."""
    found = [_again(p)] if float(p.recomputation) else []
    if int(p.experiment.strategy.pipeline) > 1:
        found.append(_bubble(p))
    found += [_messages(p, kind) for kind in FORMULAS if float(p.messages[kind].total) > 0]
    return [*found, _exposed(p), _memory(p)]


def _bubble(p: Breakdown) -> Explanation:
    strategy, ends = p.experiment.strategy, stage_ends(p.experiment)
    layers = ", ".join(str(b - a) for a, b in zip((0, *ends), ends, strict=False))
    return Explanation(
        "pipeline bubble",
        show(float(p.pipeline_bubble), "s"),
        f"what the mean rank does not work of: {BUBBLES[strategy.schedule]}",
        (
            ("stages p", f"{strategy.pipeline}", "given"),
            ("microbatches m", f"{strategy.microbatches}", "given"),
            ("chunks v", f"{strategy.chunks}", "given"),
            ("layers of each stage", layers, "cut where the longest stage is shortest and all fit"),
        ),
        "Huang et al. 2019 (GPipe); Narayanan et al. 2021, section 2.2",
        f"{CLOSE[strategy.schedule]} A stage can be no shorter than a block. Forward passes that are recomputed"
        " are not begun before the gradient is there.",
    )


def _messages(p: Breakdown, kind: str) -> Explanation:
    e, cost = p.experiment, p.messages[kind]
    ranks = {
        "tensor": "tensor",
        "halo": "spatial",
        "pipeline": "pipeline",
        "data": "data",
        "experts": "data",
    }.get(kind)
    inputs = []
    if ranks:
        members = getattr(sizes(e), ranks) if kind != "experts" else int(e.strategy.experts)
        inputs.append(("ranks of a group", f"{members}", "given"))
        inputs += _algorithms(p) * (kind == "data")
        inputs += link_inputs(p, "intra_node", "inside a node")
        inputs += link_inputs(p, "inter_node", "between nodes")
        inputs.append(("NICs a node", f"{e.machine.nics}", source_of(p, "machine", "nics")))
    else:
        need = p.offloading
        inputs += [
            ("bytes of a step, both ways", show(need.moved, "B"), "layers of the fullest rank"),
            ("bandwidth at which none of it shows", show(need.required, "B/s"), "computed"),
            ("bandwidth that is there", show(need.there, "B/s"), "host link or storage tier"),
            (
                "by page faults instead",
                show(need.paged, "s"),
                "64 KiB and 30 us a fault, our own bound",
            ),
        ]
    inputs += [
        ("latency part", show(float(cost.latency), "s"), "computed"),
        ("bandwidth part", show(float(cost.bandwidth), "s"), "computed"),
        ("reduction part", show(float(cost.reduction), "s"), "computed"),
        ("exposed", show(float(p.exposed[kind]), "s"), "computed"),
    ]
    return Explanation(
        f"{kind} messages" if kind != "offload" else "offload",
        show(float(cost.total), "s"),
        FORMULAS[kind],
        tuple(inputs),
        SOURCES[kind],
        "Ranks next to each other share a node, tensor groups first. Groups of a node that exchange at once share"
        " its NICs. Exchanges inside a layer wait; nothing hides them.",
    )


def _algorithms(p: Breakdown) -> list[tuple[str, str, str]]:
    """Return by which algorithms rank 0's buckets are exchanged."""
    e, strategy = p.experiment, p.experiment.strategy
    net, element = group_network(e, "data"), BYTES[strategy.precision]
    cuts = [buckets(part.model, float(strategy.bucket), element).sizes for part in parts(e, 0)]
    sizes = {size for cut in cuts for size in cut.tolist() if size}
    goals = ("reduce_scatter", "allgather") if strategy.zero else ("allreduce",)
    labels = dict.fromkeys(
        chosen(goal, size, net, strategy.allreduce).label
        for goal in goals
        for size in sorted(sizes)
    )
    how = "cheapest for size and network" if strategy.allreduce == AUTO else "strategy.allreduce"
    return [("algorithm", "; ".join(labels), how)]


def _again(p: Breakdown) -> Explanation:
    strategy = p.experiment.strategy
    return Explanation(
        "made again",
        show(float(p.recomputation), "s"),
        "forward passes of the segments whose activations are not kept, once more; in backward",
        (("recompute", strategy.recompute, "given"),),
        "Chen et al. 2016; Korthikanti et al. 2022 (attention alone)",
        "Its messages are made again as well, and counted with them.",
    )


def _exposed(p: Breakdown) -> Explanation:
    low, high = (float(bound) for bound in p.step_time_bounds)
    parts = tuple(
        (f"of {kind} messages", show(float(seconds), "s"), "see above")
        for kind, seconds in p.exposed.items()
        if seconds
    )
    return Explanation(
        "exposed communication",
        show(float(p.exposed_communication), "s"),
        "tensor and halo exchanges in full; messages between stages by what they make the pipeline longer;"
        " gradients by what sticks out behind the last backward pass of a rank and of those before it",
        (
            *parts,
            ("share of all messages that is hidden", f"{float(p.hidden):.0%}", "computed"),
            ("step, all hidden (bound)", show(low, "s"), "computed"),
            ("step, nothing hidden (bound)", show(high, "s"), "computed"),
        ),
        "derived in lib_dlhpc/prediction/pipelined.py and hybrid.py",
        "The mean of the ranks of a pipeline. Messages do not slow the computation that they overlap. One message"
        " between stages that is late holds up every stage behind it: their wait can be longer than all messages"
        " of a rank, and none of them counts as hidden then.",
    )


def _memory(p: Breakdown) -> Explanation:
    e = p.experiment
    strategy = e.strategy
    fullest = max(p.moments, key=lambda moment: moment.total)
    passes = in_flight(
        fullest.rank,
        int(strategy.pipeline),
        int(strategy.microbatches),
        strategy.schedule,
        int(strategy.chunks),
    )
    terms = tuple((name, show(size, "B"), "ledger") for name, size in fullest.terms.items())
    return Explanation(
        "memory of one device",
        show(float(p.memory_total), "B"),
        "the fullest rank at its fullest moment: its part of weights, gradients and state; what passes under way"
        " keep; what a backward pass needs beside; buffers",
        (
            ("which and when", fullest.when, "computed"),
            ("passes under way", f"{passes}", f"schedule {strategy.schedule}"),
            *terms,
            ("offloaded", show(float(p.offloaded), "B"), "computed"),
            ("capacity", show(e.machine.device.memory, "B"), source_of(p, "device", "memory")),
        ),
        "layer shapes; Narayanan et al. 2021 (passes under way); Korthikanti et al. 2022; Rajbhandari et al. 2020",
        "No fragmentation. What is gathered before a product is gathered again in backward, but for out of core.",
    )
