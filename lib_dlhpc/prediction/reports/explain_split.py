"""The messages of a split network explained: bytes, formula and source of each kind of parallelism."""

from lib_dlhpc.costs.fsdp_units import buckets_of
from lib_dlhpc.costs.groups import group_network, shard_network
from lib_dlhpc.costs.wire_format import on_wire
from lib_dlhpc.layers.base.copies import copies
from lib_dlhpc.layout import expert_nodes, parts, shards, sizes
from lib_dlhpc.prediction.breakdown import Breakdown
from lib_dlhpc.prediction.explanation import Explanation, links_inputs, source_of, wire_inputs
from lib_dlhpc.prediction.memory.rank_memory import explain_split_memory
from lib_dlhpc.prediction.pipelines.pipelined import explain_bubble
from lib_dlhpc.schedules.choice import chosen
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import AUTO, BY_NODE, DIRECT, LIGHT
from lib_dlhpc.spec.units import format_quantity as show

FORMULAS = {
    "tensor": "each allreduce, allgather or reduce-scatter of t ranks by the algorithm that is the cheapest for its"
    " size and network: at least 2 (t-1)/t n β + (t-1)/t n γ for an allreduce, half of it for the others; forward,"
    " backward, and again where forward is recomputed; with strategy.tensor_pieces = k a collective and the"
    " matmul next to it take c + (k-1) max(c, r) + r, where c and r are s of one piece of each",
    "context": "around each attention two all-to-alls of c ranks, of the queries, keys and values and of the outputs of"
    " a rank's tokens: at least (c-1)/c n β each; the same backward. In a ring c-1 messages of keys and values forward,"
    " 2c-1 of them and their gradients backward, α + n β each; what takes longer than the block it overlaps"
    " with is exposed",
    "experts": "two all-to-alls for each layer of experts and pass, by the algorithm that is"
    " the cheapest for its size and network: at least (e-1)/e n β, n being the positions times the experts of each,"
    " in bytes: with strategy.expert_wire = 'fp8' 1 + 4/128 per element on the way there, 2 on the way back;"
    " times strategy.expert_imbalance, as all wait for the busiest rank; in a turn of dualpipe those of one pass travel"
    " while the other computes; with strategy.expert_exchange = 'by-device' n counts a position once for each device"
    " with experts of it; with 'by-node' the longer of two all-to-alls: between nodes one copy for each node with"
    " experts of it, and inside a node one for each device",
    "halo": "for each layer α + n β, n being the rows that a rank receives or sends, whichever are more",
    "pipeline": "for each microbatch and boundary α + n β forward and backward; what arrives late is exposed",
    "data": "gradients of the rank's own layers by the allreduce; ZeRO 1 and 2: 2 (d-1)/d n β, ZeRO 3: 3 (d-1)/d n β"
    " per microbatch, of which strategy.gather = 'forward' leaves one per microbatch and one per step; over"
    " the ranks that shard the state; each bucket or layer by the algorithm that is named, or the cheapest"
    " for its size and network",
    "offload": "max(out / bandwidth, in / bandwidth) during each pass; for the update, during the rest of the last"
    " backward pass and the update; what takes longer is exposed",
}
GROUPS = {  # the degree whose ranks exchange
    "tensor": "tensor",
    "halo": "spatial",
    "pipeline": "pipeline",
    "data": "data",
    "experts": "data",
    "context": "data",
}
LIGHTLY = (
    " Norms, activations and the up-projections of latent attention are recomputed; experts write the output of their"
    " activation again in the kernel of their backward pass, at no cost."
)
COPIES = (
    "copies of each stage",
    "2",
    "dualpipe: their ranks send each other the gradients of both of their stages after the last pass",
)
SOURCES = {
    "tensor": "Shoeybi et al. 2019 (Megatron-LM); Korthikanti et al. 2022 (sequence parallelism); Wang et al. 2023"
    " (pieces)",
    "context": "Jacobs et al. 2023 (DeepSpeed Ulysses); Liu et al. 2023 (ring attention)",
    "experts": "Lepikhin et al. 2020 (GShard); Fedus et al. 2022 (Switch transformers)",
    "halo": "Dryden et al. 2019",
    "pipeline": "Huang et al. 2019 (GPipe); Narayanan et al. 2021",
    "data": "Li et al. 2020 (PyTorch Distributed); Rajbhandari et al. 2020 (ZeRO); Zhao et al. 2023 (HSDP)",
    "offload": "Awan et al. 2018 (OC-DNN); Rajbhandari et al. 2021 (ZeRO-Infinity)",
}


def explain_split(p: Breakdown) -> list[Explanation]:
    """Return the explanations that only a split network has, in the order of a step (scalar predictions)."""
    found = [_recomputation(p)] if float(p.recomputation) else []
    if int(p.experiment.strategy.pipeline) > 1:
        found.append(explain_bubble(p))
    found += [_messages(p, kind) for kind in FORMULAS if float(p.messages[kind].total) > 0]
    return [*found, _exposed(p), explain_split_memory(p)]


def _messages(p: Breakdown, kind: str) -> Explanation:
    e, cost = p.experiment, p.messages[kind]
    ranks = GROUPS.get(kind)
    inputs = []
    if ranks:
        inside = kind in ("experts", "context")
        members = int(getattr(e.strategy, kind)) if inside else getattr(sizes(e), ranks)
        inputs.append(("ranks of a group", f"{members}", "given"))
        inputs += [("pieces", f"{int(e.strategy.tensor_pieces)}", "given")] * (kind == "tensor")
        inputs += [*wire_inputs(p), *_algorithms(p)] * (kind == "data")
        inputs += [
            ("format on the way there, strategy.expert_wire", e.strategy.expert_wire, "given")
        ] * (kind == "experts")
        inputs += _copies(e) if kind == "experts" else []
        inputs += [COPIES] * (kind == "data" and e.strategy.mirrored)
        inputs += links_inputs(p)
        inputs.append(("NICs per node", f"{e.machine.nics}", source_of(p, "machine", "nics")))
    else:
        need = p.offloading
        inputs += [
            ("bytes per step, both ways", show(need.moved, "B"), "layers of the fullest rank"),
            ("bandwidth at which all of it is hidden", show(need.required, "B/s"), "computed"),
            ("available bandwidth", show(need.there, "B/s"), "host link or storage tier"),
            (
                "by page faults instead",
                show(need.paged, "s"),
                "64 KiB and 30 us per fault, our own bound",
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
        "Neighboring ranks share a node, tensor groups first. Groups of a node that communicate at once share"
        " its NICs. Collectives inside a layer overlap only where they are cut into pieces.",
    )


def _copies(e: Experiment) -> list[tuple[str, str, str]]:
    """Return to how many devices and nodes a token is sent, where each gets one copy."""
    if e.strategy.expert_exchange == DIRECT:
        return []
    layer = next(layer for layer in e.model.layers if layer.has_experts)
    token = layer.attributes["routed"] / layer.attributes["chosen"] * layer.output_shape[-1]
    found, where = [], "expected, layers/base/copies.py"
    if e.strategy.expert_exchange == BY_NODE:
        nodes = expert_nodes(e)
        found = [
            ("nodes of a group", f"{nodes}", "computed"),
            ("of which a token is sent to", f"{copies(layer, nodes) / token:.3g}", where),
        ]
    many = copies(layer, int(e.strategy.experts)) / token
    return [*found, ("devices that a token is sent to", f"{many:.3g}", where)]


def _algorithms(p: Breakdown) -> list[tuple[str, str, str]]:
    """Return by which algorithms rank 0's buckets are exchanged."""
    e, strategy = p.experiment, p.experiment.strategy
    many = shards(e)
    net = shard_network(e) if many > 1 else group_network(e, "data")
    cuts = [buckets_of(part.model, strategy).sizes for part in parts(e, 0)]
    bytes_of = {size for cut in cuts for size in on_wire(strategy, cut).tolist() if size}
    goals = ("reduce_scatter", "allgather") if strategy.zero else ("allreduce",)
    labels = dict.fromkeys(
        chosen(goal, size, net, strategy.allreduce).label
        for goal in goals
        for size in sorted(bytes_of)
    )
    how = "cheapest for size and network" if strategy.allreduce == AUTO else "strategy.allreduce"
    found = [("algorithm", "; ".join(labels), how)]
    if 1 < many < sizes(e).data:
        same = f"{sizes(e).data // many}, which sum its gradients"
        found += [
            ("ranks that shard the state", f"{many}", "given"),
            ("copies of a shard", same, "computed"),
        ]
    return found


def _recomputation(p: Breakdown) -> Explanation:
    strategy = p.experiment.strategy
    return Explanation(
        "recomputation",
        show(float(p.recomputation), "s"),
        "forward passes, repeated in backward, of the layers whose activations are not stored",
        (("recompute", strategy.recompute, "given"),),
        "Chen et al. 2016; Korthikanti et al. 2022 (attention alone); DeepSeek-AI 2024, section 3.2.3 (norms and"
        " up-projections of latent attention); Liang et al. 2024 (per operator, torchtitan)",
        "The messages of these passes are repeated as well, and counted as communication."
        + LIGHTLY * (strategy.recompute == LIGHT),
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
        "tensor, expert, halo and context exchanges in full, but in a ring, or in pieces, only what takes"
        " longer than the computation that it overlaps;"
        " messages between stages: how much longer the pipeline takes with them;"
        " gradients: what is left when the last rank has finished its backward passes",
        (
            *parts,
            ("share of all messages that is hidden", f"{float(p.hidden):.0%}", "computed"),
            ("step, all hidden (bound)", show(low, "s"), "computed"),
            ("step, neither communication nor input hidden (bound)", show(high, "s"), "computed"),
        ),
        "longest path through the program of the step, lib_dlhpc/program/path.py",
        "The mean over the ranks of a pipeline. Messages do not slow down the computation that they overlap."
        " One message between stages that is late holds up every stage behind it: their wait can be longer"
        " than all messages of a rank, and then none of them counts as hidden.",
    )
