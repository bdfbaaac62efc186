"""Strategy: parallelization over devices and gradient synchronization."""

from collections import ChainMap, OrderedDict
from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.records import dataclass
from lib_dlhpc.spec.machine import IN_SWITCHES
from lib_dlhpc.spec.schema import choice, flag, holds, number, text, whole
from lib_dlhpc.spec.training import Training

# Allreduce algorithms by name, with the path of the record (schedules/algorithm.py).
ALLREDUCES = OrderedDict(
    ring="lib_dlhpc.schedules.rings:RING",
    recursive_doubling="lib_dlhpc.schedules.doubling:RECURSIVE_DOUBLING",
    rabenseifner="lib_dlhpc.schedules.doubling:RABENSEIFNER",
    binomial="lib_dlhpc.schedules.trees:BINOMIAL",
    hierarchical="lib_dlhpc.schedules.hierarchy:HIERARCHICAL",
    torus_2d="lib_dlhpc.schedules.hierarchy:TORUS_2D",
    hierarchical_ring="lib_dlhpc.schedules.levels:HIERARCHICAL_RING",
    halving_doubling="lib_dlhpc.schedules.levels:HALVING_DOUBLING",
    parameter_server="lib_dlhpc.schedules.exchange:PARAMETER_SERVER",
)
AUTO = "auto"  # the cheapest library algorithm for each size and network
NAMED_ALLREDUCES = ChainMap(dict.fromkeys(IN_SWITCHES, ""), ALLREDUCES, {AUTO: ""})
UPDATES = ("synchronous", "asynchronous", "local")
OPTIMIZERS = ("sgd", "momentum", "lars", "adam", "lamb", "muon")
RUN_SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1")
SCHEDULES = (*RUN_SCHEDULES, "dualpipe")  # predicted and simulated, not run
SPLIT_BACKWARD = ("zb-h1", "dualpipe")  # weight gradients are computed apart
SPLITS = ("paired", "column", "row")
LIGHT = "light"
RUN_RECOMPUTES = ("none", "selective", "full")
PER_OP, EARLY_STOP = "per-op", "early-stop"
RECOMPUTES = ("none", LIGHT, "selective", PER_OP, EARLY_STOP, "full")  # not all are trained
OFFLOADS = ("none", "activations", "all")
IN_PLACE, SEPARATE, ONE_KERNEL = "in-place", "separate", "fused"
LOSSES = (IN_PLACE, SEPARATE, ONE_KERNEL)
STAGE_CUTS = ("blocks", "work")
PYTORCH = "pytorch"
PIPELINE_RUNTIMES = ("megatron", PYTORCH)
ASYNC_TP = "async-tp"
TENSOR_OVERLAPS = ("all", ASYNC_TP)
FUSED = (AUTO, "on", "off")
CONTEXT_EXCHANGES = ("heads", "ring", "gather")
FORWARD = "forward"  # weights are gathered once a step, behind the first forward pass
GATHERS = ("usual", FORWARD)
ZERO_UNITS = ("block", "layer")
SAME = "same"  # gradients, or tokens, are exchanged in the precision
ALL = "all"
ADAPTED = ("queries_values", ALL)
WIRES = (SAME, "fp32", "fp16", "bf16", "fp8")
EXPERT_WIRES = (SAME, "fp8")
DIRECT, BY_DEVICE, BY_NODE = "direct", "by-device", "by-node"
EXPERT_EXCHANGES = (DIRECT, BY_DEVICE, BY_NODE)
# A value other than the default partitions a network, or reduces its memory on a device.
SPLIT_FIELDS = (
    *("tensor", "pipeline", "spatial", "context", "microbatches"),
    *("zero", "shards", "gather", "zero_unit", "recompute", "loss", "offload", "experts"),
)
FP8, NVFP4, NVFP4_ALL = NARROW = "fp8", "nvfp4", "nvfp4-all"  # linear layers; all else is bf16
FORMATS = {FP8: FP8, NVFP4: NVFP4, NVFP4_ALL: NVFP4}  # of what these layers read
TRAINING_PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", *NARROW)


@dataclass(frozen=True)
class Strategy:
    """Devices, batch, precision, parallelism and gradient synchronization.

    A replica of the network is partitioned over tensor x pipeline x spatial x context devices; there are `data`
    replicas. `batch` is the samples of one replica in a step, processed in `microbatches` equal parts. precision: of
    arithmetic, weights and activations; fp16 and bf16 have fp32 master weights; fp8, nvfp4 and nvfp4-all are bf16 whose
    linear layers read operands in that format, with nvfp4 but those of the last blocks (spec/low_precision.py).
    pipeline_runtime: whose memory a stage takes: Megatron-LM's, which frees messages once they are used, or PyTorch's
    (torch.distributed.pipelining with FSDP; prediction/memory/pytorch_pipelines.py). schedule: of the pipeline;
    interleaved ranks hold `chunks` stages each; zb-h1: a zero-bubble pipeline, whose weight gradients fill idle time
    (Qi et al. 2024); dualpipe: microbatches from both ends, so that each rank holds two stages and hides exchanges of
    experts (DeepSeek-AI 2024, arXiv 2412.19437, section 3.2.1); not run. stage_cut: into stages of equally many
    blocks, where they divide (blocks), or with the least work in the longest stage (work): fewer blocks beside
    embedding and logits, as in Llama 3 (Grattafiori et al. 2024, section 3.3.2; layout/stages.py).
    split: how tensor parallelism partitions layers: by outputs (column, or filter), by inputs (row, or channel), or
    alternating, which needs the fewest messages (Shoeybi et al. 2019, "Megatron-LM"). tensor_pieces: into which a
    tensor-parallel collective and the product beside it are cut to overlap (Wang et al. 2023; costs/async_tp.py).
    tensor_overlap: of which collectives: all beside a product (all), or those that PyTorch's AsyncTP cuts (async-tp).
    sequence_parallel: partition activations between such layers by position (Korthikanti et al. 2022). context: ranks
    that divide the tokens of each sequence between them, and hold the same weights. For attention they exchange
    queries, keys and values so that each has all tokens of some heads ("heads"; Jacobs et al. 2023, "DeepSpeed
    Ulysses"), or pass keys and values round a ring while they compute ("ring"; Liu et al. 2023), or gather them for
    each head of queries before the first block ("gather"; PyTorch, parallel/context.py).
    zero: what is sharded over replicas: 1 optimizer state, 2 gradients too, 3 weights too (Rajbhandari et al. 2020);
    over `shards` neighbors, if not over all, whose shards the others replicate (hybrid sharding, HSDP; Zhao et al.
    2023, "PyTorch FSDP"); that of experts over the replicas that hold the same ones. gather: when updated weights are
    gathered: "usual": after the update with zero = 1 and 2, before each pass with 3; "forward": once a step, behind the
    first forward pass (Megatron-LM's overlap-param-gather; FSDP's reshard_after_forward = False). zero_unit: what ZeRO
    3 gathers at a time: a block of the network, whose gradients are reduce-scattered together as well (FSDP), or a
    layer, with gradients in buckets (DeepSpeed in 2021; costs/fsdp_units.py). allreduce: the algorithm of gradient
    synchronization; its reduce-scatter and allgather, if it is composed of them, also serve ZeRO. "auto": the cheapest
    for each size and network (schedules/choice.py), as for all other collectives. recompute: activations recomputed in
    backward: all within a block (full), or up to the last that backward reads (early-stop, as PyTorch's checkpoint),
    attention only (selective), norms, activations and the up-projections of latent attention (light),
    or all of a block but fused attention and every second matmul (per-op, as torchtitan's selective checkpointing;
    costs/segments.py). loss: whether 32-bit logits become their gradients in one array (in-place),
    in one for each kernel (separate), or never exist (fused; costs/cross_entropy.py). offload: what is offloaded
    to host memory, or to the storage tier `offload_to`: activations, or weights and optimizer state too (all). experts:
    the degree of expert parallelism: replicas that hold the experts of each layer together. expert_imbalance: positions
    of the busiest of the ranks that share out experts, over their mean; a run measures it. expert_exchange: each expert
    of a position gets its own copy (direct), each device one (by-device), or each node one, which is forwarded inside,
    once to each device (by-node; layers/base/copies.py). expert_wire: the format in which positions travel to experts,
    and in backward the gradients of their outputs; what comes home is in that of activations (DeepSeek-AI 2024, section
    3.3.3). fused_attention: whether attention is one kernel that stores no scores and recomputes them in backward (Dao
    et al. 2022, "FlashAttention"); "auto": as on the device.
    update: synchronous devices exchange gradients every step; asynchronous devices push gradients to the parameter
    servers and pull weights without waiting for each other; local devices take `local_steps` steps, then average their
    weights. wire: the format in which gradients are exchanged and added, with zero only fp32 (PyTorch's reduce_dtype).
    lora: rank of the adapters that are trained beside frozen weights (Hu et al. 2021, "LoRA"; spec/adapters.py); 0: all
    weights are trained. adapted: beside which products: those that make queries and values, or all but the last.
    optimizer: adam decays weights as AdamW does, whose name is read too; muon orthogonalizes the momentum of weight
    matrices, AdamW updates all else (costs/muon.py). power_limit: W that a device may draw; its arithmetic is slowed
    (costs/power_limit.py), as by `nvidia-smi -pl`. staleness: the most steps that an asynchronous device may be ahead
    of the slowest (Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter server").
    """

    nodes: int = whole(default=1)
    devices_per_node: int = whole(default=0, least=0)  # 0: all of the node
    batch: int = whole(default=32, most=1e12)
    precision: str = choice(TRAINING_PRECISIONS, default="fp32")
    allreduce: str = choice(NAMED_ALLREDUCES, default=AUTO)
    overlap: bool = flag(default=True)
    bucket: float = number("B", default=25e6, positive=True)
    wire: str = choice(WIRES, default=SAME)  # of gradients between replicas
    optimizer: str = choice(OPTIMIZERS, default="momentum", also={"adamw": "adam"})
    data: int = whole(default=0, least=0)  # 0: devices / (tensor x pipeline x spatial x context)
    tensor: int = whole(default=1)
    pipeline: int = whole(default=1)
    spatial: int = whole(default=1)
    context: int = whole(default=1)
    context_exchange: str = choice(CONTEXT_EXCHANGES, default="heads")
    microbatches: int = whole(default=1)
    schedule: str = choice(SCHEDULES, default="1f1b")
    chunks: int = whole(default=1)
    stage_cut: str = choice(STAGE_CUTS, default="blocks")
    pipeline_runtime: str = choice(PIPELINE_RUNTIMES, default="megatron")
    split: str = choice(SPLITS, default="paired")
    tensor_pieces: int = whole(default=1)  # of tensor-parallel collectives, and of products
    tensor_overlap: str = choice(TENSOR_OVERLAPS, default="all")  # which of them are cut
    sequence_parallel: bool = flag(default=False)
    zero: int = whole(default=0, least=0, most=3)
    shards: int = whole(default=0, least=0)  # replicas over which ZeRO shards; 0: all
    gather: str = choice(GATHERS, default="usual")
    zero_unit: str = choice(ZERO_UNITS, default="block")  # that ZeRO 3 gathers at a time
    recompute: str = choice(RECOMPUTES, default="none")
    loss: str = choice(LOSSES, default=IN_PLACE)  # in which arrays logits become their gradients
    offload: str = choice(OFFLOADS, default="none")
    experts: int = whole(default=1)  # replicas over which experts are sharded
    expert_exchange: str = choice(EXPERT_EXCHANGES, default=DIRECT)
    expert_wire: str = choice(EXPERT_WIRES, default=SAME)  # of tokens on their way to experts
    fused_attention: str = choice(FUSED, default=AUTO)
    expert_imbalance: float = number(default=1.0, least=1.0, most=1e3)  # 1: balanced
    offload_to: str = text(default="host")  # or a storage tier of the machine
    update: str = choice(UPDATES, default="synchronous")
    local_steps: int = whole(default=1)  # between weight averages, with local updates
    staleness: int = whole(default=0, least=0)  # with asynchronous updates; 0: no bound
    servers: int = whole(default=1)  # parameter servers, one a node; with asynchronous updates
    power_limit: float = number("W", default=0.0)  # of each device; 0: none
    lora: int = whole(default=0, least=0)  # rank of adapters; 0: none, all weights are trained
    adapted: str = choice(ADAPTED, default="queries_values")  # products that have adapters

    @property
    def is_split(self) -> bool:
        """Whether the strategy is more than plain data parallelism."""
        return any(
            holds(np.not_equal(getattr(self, name), getattr(type(self), name)))
            for name in SPLIT_FIELDS
        )

    @property
    def replica(self) -> Any:
        """Devices of one model replica."""
        return self.holders * self.context

    @property
    def holders(self) -> Any:
        """Devices that hold the weights of a replica once: each context rank has them too."""
        return self.tensor * self.pipeline * self.spatial

    @property
    def splits_backward(self) -> bool:
        """Whether a pipeline computes weight gradients apart from the rest of backward."""
        return self.schedule in SPLIT_BACKWARD

    @property
    def mirrored(self) -> bool:
        """Whether microbatches enter from both ends, so that each rank holds a stage of two copies of the network."""
        return self.schedule == "dualpipe" and bool(np.any(np.greater(self.pipeline, 1)))

    @property
    def has_ring(self) -> bool:
        """Whether attention is computed a block at a time, beside messages of keys, values and their gradients."""
        return self.context_exchange != "heads" and bool(np.any(np.greater(self.context, 1)))

    @property
    def overlaps(self) -> bool:
        """Whether gradient synchronization overlaps with backward: only with synchronous updates."""
        return self.overlap and self.update == "synchronous"


def check_update(strategy: Strategy) -> None:
    """Raise SpecError for a setting that applies only to another update mode."""
    for name, none, update in (
        ("local_steps", 1, "local"),
        ("staleness", 0, "asynchronous"),
        ("servers", 1, "asynchronous"),
    ):
        value = getattr(strategy, name)
        if strategy.update != update and np.any(np.not_equal(value, none)):
            raise SpecError(
                f"strategy.{name} = {np.max(value)}: applies only with strategy.update = {update!r};"
                f" with {strategy.update!r} the legal value is {none}."
            )


def check_power_limit(strategy: Strategy, idle: Any, most: Any) -> None:
    """Raise SpecError for a power limit at which a device cannot run; idle, most: W that it draws idle and busy."""
    limit = strategy.power_limit
    wrong = np.not_equal(limit, 0) & (np.less_equal(limit, idle) | np.greater(limit, most))
    if np.any(wrong):
        found = float(np.max(np.where(wrong, limit, 0.0)))
        raise SpecError(
            f"strategy.power_limit = {found:g} W: legal: above machine.device.idle_power ="
            f" {float(np.max(idle)):g} W, up to machine.device.busy_power = {float(np.min(most)):g} W, or 0: no limit.",
            wrong,
        )


def check_split(strategy: Strategy) -> None:
    """Raise SpecError for contradictory degrees of parallelism."""
    s = strategy
    for name in ("tensor", "pipeline", "spatial", "context", "microbatches", "zero", "experts"):
        value, none = getattr(s, name), 0 if name == "zero" else 1
        if s.update != "synchronous" and np.any(np.not_equal(value, none)):
            raise SpecError(
                f"strategy.{name} = {np.max(value)}: with strategy.update = {s.update!r} the legal value is"
                f" {none}; only synchronous devices can partition a network."
            )
    for wrong, message in (*_splits_at_odds(s), *_ends_at_odds(s), *_shards_at_odds(s)):
        if holds(wrong):
            raise SpecError(message, wrong)


def _splits_at_odds(s: Strategy) -> tuple[tuple[Any, str], ...]:
    """Return degrees of parallelism that contradict each other: whether they do, and what to say."""
    return (
        (
            np.greater(s.tensor, 1) & np.greater(s.spatial, 1),
            f"strategy.tensor = {s.tensor} with strategy.spatial = {s.spatial}: a layer is split by its"
            " weights or over space, not both; set one of them to 1.",
        ),
        (
            np.greater(s.context, 1) & np.greater(s.spatial, 1),
            f"strategy.context = {s.context} with strategy.spatial = {s.spatial}: a sample is a sequence or an image,"
            " not both; set one of them to 1.",
        ),
        (
            s.has_ring and s.fused_attention == "off",
            "strategy.fused_attention = 'off': attention by blocks of the sequence stores no scores;"
            f" legal with strategy.context_exchange = {s.context_exchange!r}: 'auto', 'on'.",
        ),
        (
            np.greater(s.microbatches, s.batch),
            f"strategy.microbatches = {s.microbatches}: more than the {s.batch} samples of"
            " strategy.batch; legal: up to that.",
        ),
        (
            np.greater(s.chunks, 1) & (s.schedule != "interleaved"),
            f"strategy.chunks = {s.chunks}: applies only with strategy.schedule = 'interleaved'; with"
            f" {s.schedule!r} the legal value is 1.",
        ),
        (
            (s.schedule == "interleaved") & np.not_equal(np.mod(s.microbatches, s.pipeline), 0),
            f"strategy.microbatches = {s.microbatches}: the interleaved schedule needs a multiple of"
            f" strategy.pipeline = {s.pipeline}.",
        ),
        (
            s.sequence_parallel & np.equal(s.tensor, 1),
            "strategy.sequence_parallel = true: it needs strategy.tensor above 1; legal here: false.",
        ),
        (
            s.splits_backward & np.greater(s.pipeline, 1) & (s.offload != "none"),
            f"strategy.offload = {s.offload!r}: what is offloaded returns for one backward pass; with"
            f" strategy.schedule = {s.schedule!r} there are two, and the legal value is 'none'.",
        ),
    )


def _ends_at_odds(s: Strategy) -> tuple[tuple[Any, str], ...]:
    """Return what microbatches from both ends contradict: whether they do, and what to say."""
    several = s.mirrored & np.greater(s.pipeline, 1)
    return (
        (
            several & np.not_equal(np.mod(s.pipeline, 2), 0),
            f"strategy.pipeline = {s.pipeline}: with strategy.schedule = 'dualpipe' each rank holds a stage from"
            " either end; legal: 1, which has no other end, or even numbers.",
        ),
        (
            several & (s.pipeline_runtime == PYTORCH),
            f"strategy.pipeline_runtime = {PYTORCH!r}: with strategy.schedule = 'dualpipe' legal is 'megatron'.",
        ),
        (
            several
            & (
                np.not_equal(np.mod(s.microbatches, 2), 0) | np.less(s.microbatches, 2 * s.pipeline)
            ),
            f"strategy.microbatches = {s.microbatches}: with strategy.schedule = 'dualpipe' half of them enter at"
            f" either end; legal: even numbers from 2 x strategy.pipeline = {2 * s.pipeline}.",
        ),
    )


def _shards_at_odds(s: Strategy) -> tuple[tuple[Any, str], ...]:
    """Return what sharding of the state contradicts: whether it does, and what to say."""
    return (
        (
            np.greater(s.experts, 1) & np.greater(s.shards, 0),
            f"strategy.shards = {s.shards}: with strategy.experts = {s.experts} the legal value is 0; the state of"
            " experts is sharded over all replicas that hold them, that of all other weights over all replicas.",
        ),
        (
            np.greater(s.experts, 1) & np.greater(s.zero, 0) & (s.offload == "all"),
            f"strategy.offload = 'all': with strategy.experts = {s.experts} and strategy.zero = {s.zero} the legal"
            " values are 'none', 'activations'.",
        ),
        (
            np.greater(s.shards, 0) & np.equal(s.zero, 0),
            f"strategy.shards = {s.shards}: applies only with strategy.zero; with strategy.zero = 0 the legal"
            " value is 0.",
        ),
        (
            np.equal(s.zero, 0) & (s.gather != "usual"),
            f"strategy.gather = {s.gather!r}: applies only with strategy.zero; with strategy.zero = 0 the legal"
            " value is 'usual'.",
        ),
        (
            np.not_equal(s.zero, 3) & (s.zero_unit != "block"),
            f"strategy.zero_unit = {s.zero_unit!r}: applies only with strategy.zero = 3; with strategy.zero = {s.zero}"
            " the legal value is 'block'.",
        ),
    )


def exchange_in_words(strategy: Strategy, training: Training) -> str:
    """Describe the gradient synchronization of a scalar experiment."""
    if training.low_rank:
        return f"gradients in factors of rank {training.low_rank}"
    if training.sparsity:
        return f"{100 * (1 - training.sparsity):.3g}% of the gradients, all-gathered"
    if strategy.update == "asynchronous":
        several = "s" * (strategy.servers > 1)
        bound = f", at most {strategy.staleness} steps ahead" * bool(strategy.staleness)
        return f"asynchronous with {strategy.servers} server{several}{bound}"
    every = f" of weights, every {strategy.local_steps} steps" * (strategy.update == "local")
    how = "cheapest allreduce" if strategy.allreduce == AUTO else strategy.allreduce
    wire = f" in {strategy.wire}" * (strategy.wire != SAME)
    return f"{how}{wire}{every}{_split_in_words(strategy)}"


def _split_in_words(strategy: Strategy) -> str:
    """Describe how the network is partitioned, if it is."""
    s = strategy
    words = [
        f"{name} {getattr(s, name)}"
        for name in ("tensor", "pipeline", "spatial")
        if getattr(s, name) > 1
    ]
    if s.pipeline > 1:
        way = f", {s.pipeline_runtime}" * (s.pipeline_runtime == PYTORCH)
        way += ", cut by work" * (s.stage_cut == "work")
        words[-1 - (s.spatial > 1)] += f" ({s.schedule}{way})"
    way = f" ({s.tensor_overlap})" * (s.tensor_overlap != "all")
    words += [f"in {s.tensor_pieces} pieces{way}"] * (s.tensor > 1 and s.tensor_pieces > 1)
    words += ["sequence parallel"] * bool(s.sequence_parallel)
    words += [f"context {s.context} ({s.context_exchange})"] * (s.context > 1)
    ways = [s.expert_exchange] * (s.expert_exchange != DIRECT)
    ways += [f"tokens in {s.expert_wire}"] * (s.expert_wire != SAME)
    words += [f"experts {s.experts}" + f" ({', '.join(ways)})" * bool(ways)] * (s.experts > 1)
    words += [f"{s.microbatches} microbatches"] * (s.microbatches > 1)
    words += [f"ZeRO {s.zero}" + f" over {s.shards} ranks" * bool(s.shards)] * bool(s.zero)
    words += [f"{s.zero_unit} by {s.zero_unit}"] * (s.zero_unit != "block")
    words += ["weights gathered in the forward pass"] * (s.gather == FORWARD)
    words += [f"recompute {s.recompute}"] * (s.recompute != "none")
    words += [f"loss {s.loss}"] * (s.loss != IN_PLACE)
    words += [f"LoRA of rank {s.lora}"] * bool(s.lora)
    words += [f"offload {s.offload}"] * (s.offload != "none")
    return "".join(f", {word}" for word in words)
