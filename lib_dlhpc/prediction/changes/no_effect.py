"""Settings that are legal but have no effect with the rest of the experiment: one sentence each."""

import lib_dlhpc.layout as layout  # its names are imported on first use
from lib_dlhpc.costs import low_precision
from lib_dlhpc.costs.async_tp import cut_of
from lib_dlhpc.costs.fsdp_units import by_block
from lib_dlhpc.costs.segments import segments
from lib_dlhpc.costs.wire_format import is_cast
from lib_dlhpc.spec.catalog import names
from lib_dlhpc.spec.dataset import read_dataset
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.fusion import FUSED_KINDS
from lib_dlhpc.spec.loss import is_logits
from lib_dlhpc.spec.strategy import (
    BY_DEVICE,
    BY_NODE,
    DIRECT,
    IN_PLACE,
    LIGHT,
    NARROW,
    PER_OP,
    PYTORCH,
    SAME,
)


def without_effect(experiment: Experiment) -> list[str]:
    """Return a sentence for each setting of a scalar experiment's strategy that has no effect.

    No step is quicker for it and no device holds less; more it may hold.
    """
    s = experiment.strategy
    found = []
    if s.pipeline == 1 and (s.schedule != "1f1b" or s.chunks > 1):
        chunks = f" and strategy.chunks = {s.chunks}" * (s.chunks > 1)
        keeps = s.schedule == "gpipe" and s.microbatches > 1
        more = "; all it does is keep more microbatches at once" * keeps
        found.append(
            f"strategy.schedule = '{s.schedule}'{chunks}: there is no pipeline to order{more}."
        )
    elif s.schedule == "interleaved" and s.chunks == 1:
        found.append(
            "strategy.schedule = 'interleaved': with strategy.chunks = 1 a rank has one stage and nothing to"
            " interleave; the bubble is that of '1f1b', which keeps fewer microbatches."
        )
    if s.pipeline == 1 and s.pipeline_runtime == PYTORCH:
        found.append(f"strategy.pipeline_runtime = {PYTORCH!r}: there is no pipeline.")
    if s.pipeline == 1 and s.stage_cut != "blocks":
        found.append(f"strategy.stage_cut = {s.stage_cut!r}: there is no pipeline to cut.")
    if s.zero and layout.sizes(experiment).data == 1:
        found.append(f"strategy.zero = {s.zero}: replicas shard the state, and there is only one.")
    elif s.shards == layout.sizes(experiment).data:
        found.append(f"strategy.shards = {s.shards}: that is all replicas, as with 0.")
    if by_block(s) and s.bucket != type(s).bucket and layout.sizes(experiment).data > 1:
        found.append(
            f"strategy.bucket = {s.bucket:g}: ZeRO 3 exchanges one block of the network at a time."
        )
    if s.wire != SAME and layout.sizes(experiment).data == 1:
        found.append(
            f"strategy.wire = '{s.wire}': replicas exchange gradients, and there is only one."
        )
    elif s.wire != SAME and not is_cast(s):
        found.append(
            f"strategy.wire = '{s.wire}': gradients of precision {s.precision} already have that format."
        )
    found += [*_of_layers(experiment), *_of_precision(experiment), *_of_attention(experiment)]
    if not s.lora and s.adapted != "queries_values":
        found.append(
            f"strategy.adapted = '{s.adapted}': with strategy.lora = 0 there are no adapters."
        )
    if s.offload == "none" and s.offload_to != "host":
        found.append(f"strategy.offload_to = '{s.offload_to}': nothing is offloaded.")
    return [*found, *_of_experts(experiment), *_of_samples(experiment)]


def _of_samples(experiment: Experiment) -> list[str]:
    """Return a sentence if a text is described in samples of another length than the model's, other than by the
    catalog."""
    data, model = experiment.dataset, experiment.model
    known = data.name in names("datasets") and read_dataset(data.name).sample_shape
    if not model.reads_tokens or data.sample_shape in ((), known, model.input_shape):
        return []
    return [
        f"dataset.sample_shape = {list(data.sample_shape)}: each sample has the {model.input_shape[0]:,} tokens of the"
        " model's sequence; set model.sequence for others."
    ]


def _of_experts(experiment: Experiment) -> list[str]:
    """Return a sentence for each setting of experts and heads that has no effect."""
    s, found = experiment.strategy, list[str]()
    if s.tensor > 1 and (few := layout.too_few(experiment.model, int(s.tensor))):
        found.append(f"strategy.tensor = {s.tensor}: {few}.")
    if s.expert_imbalance > 1 and (s.experts * s.tensor == 1 or not experiment.model.has_experts):
        found.append(
            f"strategy.expert_imbalance = {s.expert_imbalance}: experts are not split over ranks, so no rank waits."
        )
    asked = f"strategy.expert_exchange = {s.expert_exchange!r}"
    if s.expert_exchange != DIRECT and (s.experts == 1 or not experiment.model.has_experts):
        found.append(f"{asked}: no token travels to another rank's experts.")
    elif s.expert_exchange == BY_NODE and layout.expert_nodes(experiment) == 1:
        found.append(
            f"{asked}: the ranks that share experts are in one node, so it is the same as {BY_DEVICE!r}."
        )
    if s.expert_wire != SAME and (s.experts == 1 or not experiment.model.has_experts):
        found.append(
            f"strategy.expert_wire = '{s.expert_wire}': no token travels to another rank's experts."
        )
    return found


def _of_layers(experiment: Experiment) -> list[str]:
    """Return a sentence for each way to split layers that splits none of them."""
    s, found = experiment.strategy, list[str]()
    if s.tensor == 1 and s.split != "paired":
        found.append(f"strategy.split = '{s.split}': with strategy.tensor = 1 no layer is split.")
    if s.tensor_pieces > 1 and not _is_cut(experiment):
        found.append(
            f"strategy.tensor_pieces = {s.tensor_pieces}: no matmul over positions is next to a tensor-parallel"
            " collective that has a position for each piece."
        )
    if s.tensor_overlap != "all" and s.tensor_pieces == 1:
        found.append(
            f"strategy.tensor_overlap = {s.tensor_overlap!r}: with strategy.tensor_pieces = 1 nothing is cut."
        )
    if s.loss != IN_PLACE and not any(is_logits(layer) for layer in experiment.model.layers):
        found.append(f"strategy.loss = {s.loss!r}: the network has no 32-bit logits.")
    if s.context == 1 and s.context_exchange != "heads":
        found.append(
            f"strategy.context_exchange = '{s.context_exchange}': with strategy.context = 1 no rank lacks a token."
        )
    return found


def _of_precision(experiment: Experiment) -> list[str]:
    """Return a sentence where no layer has the precision that is set."""
    if experiment.strategy.precision not in NARROW or low_precision.is_used(experiment.model):
        return []
    asked = experiment.strategy.precision
    return [
        f"strategy.precision = {asked!r}: the network has no linear layer except its last, so all of it is in bf16."
    ]


def _of_attention(experiment: Experiment) -> list[str]:
    """Return a sentence for each setting of attention that has no effect."""
    s, found = experiment.strategy, list[str]()
    attends = any(layer.traits.selective for layer in experiment.model.layers)
    fused = any(layer.kind in FUSED_KINDS for layer in experiment.model.layers)
    if s.recompute == "selective" and not attends:
        why = "attention is fused and stores no scores" if fused else "the network has no attention"
        found.append(f"strategy.recompute = 'selective': {why} to recompute.")
    if s.recompute == LIGHT and not any(
        layer.traits.light or layer.traits.light_elements(layer)
        for layer in experiment.model.layers
    ):
        found.append(
            f"strategy.recompute = {LIGHT!r}: the network has no norm and no activation that could be recomputed."
        )
    if s.recompute == PER_OP and not segments(experiment.model, PER_OP):
        found.append(f"strategy.recompute = {PER_OP!r}: the network is not made of blocks.")
    if s.fused_attention == "on" and not fused:
        found.append("strategy.fused_attention = 'on': the network has no attention.")
    return found


def _is_cut(experiment: Experiment) -> bool:
    """Return whether any matmul is computed in pieces."""
    many, how = int(experiment.strategy.tensor_pieces), experiment.strategy.tensor_overlap
    chain = layout.chain(experiment)
    return any(cut_of(part.model, many, how) for held in chain for part in held)
