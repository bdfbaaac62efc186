"""ZeRO's memory on one rank: model states sharded by level, and the buffers in which they are exchanged.

    level   weights   gradients   master weights, optimizer state
    0       P         P           P
    1       P         P           P / N
    2       P         P / N       P / N
    3       P / N     P / N       P / N

P: parameters of the rank's stages and tensor shard, times the bytes of each; N: replicas that share the state. Level 3
adds the gathered weights of the unit in use and of the next. Source: Rajbhandari et al. 2020, "ZeRO: Memory
Optimizations Toward Training Trillion Parameter Models", Figure 1 and section 5.
"""

from collections.abc import Sequence

from lib_dlhpc.costs.fsdp_units import buckets_of, unit_weights
from lib_dlhpc.costs.model_state import MASTER_BYTES, state_each
from lib_dlhpc.costs.roofline import BYTES, MIXED
from lib_dlhpc.costs.stored_activations import AT_ONCE
from lib_dlhpc.costs.wire_format import adds_wide, is_cast, on_wire
from lib_dlhpc.layout import mean_shards, sizes
from lib_dlhpc.prediction.memory.pytorch_pipelines import holds_messages
from lib_dlhpc.schedules.ring_collectives import PIECE
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.strategy import FORWARD, Strategy


def model_states(experiment: Experiment, model: Model) -> tuple[dict[str, float], float]:
    """Return weights, gradients and optimizer state of a rank in bytes, and their offloaded bytes."""
    strategy, replicas = experiment.strategy, mean_shards(experiment, model)
    size = BYTES[strategy.precision]
    master = MASTER_BYTES * (strategy.precision in MIXED)
    levels = {  # bytes of a parameter, and the ZeRO level from which replicas shard it
        "weights": (size, 3),
        "gradients": (gradient_bytes(experiment), 2),
        "master weights": (master, 1),
        "optimizer state": (state_each(model, strategy.optimizer) * max(size, MASTER_BYTES), 1),
    }
    split = {
        name: (float(count) * b / (replicas if strategy.zero >= level else 1))
        for name, (b, level) in levels.items()
        for count in (model.parameters if name == "weights" else model.trained,)
    }
    if strategy.offload != "all":
        return split, 0.0
    largest = float(model.layer_parameters.max(initial=0.0))
    near = {name: min(split[name], AT_ONCE * largest * b) for name, (b, _) in levels.items()}
    return near, sum(split.values()) - sum(near.values())


def gradient_bytes(experiment: Experiment) -> int:
    """Return the bytes of a gradient that is kept: where replicas share the state, in the format in which it is added.

    PyTorch's FSDP2 keeps gradients in reduce_dtype between microbatches (to_accumulated_grad_if_needed), Megatron-LM
    in fp32 with accumulate_allreduce_grads_in_fp32.
    """
    strategy = experiment.strategy
    size = BYTES[strategy.precision]
    added = sizes(experiment).data > 1 and (strategy.zero >= 2 or adds_wide(strategy))
    return int(on_wire(strategy, size)) if added else size


def exchange_buffers(experiment: Experiment, model: Model) -> float:
    """Return the bytes of the buffers in which weights and gradients are exchanged."""
    strategy = experiment.strategy
    if sizes(experiment).data == 1:
        return 0.0
    if strategy.zero >= 2:  # of whole layers; one is in flight while the next is filled
        cut = buckets_of(model, strategy).sizes.tolist()
        return _two([on_wire(strategy, size) for size in cut], cut) + _gathered(strategy, model)
    size = BYTES[strategy.precision]
    bucket = float(min(strategy.bucket, model.trained * size))
    if strategy.zero == 1 and holds_messages(
        strategy
    ):  # in streams of their own (pytorch_pipelines.py)
        shards_of = on_wire(strategy, model.trained * size) / mean_shards(experiment, model)
        units = unit_weights(model, "block")
        return float(shards_of) + size * _two(units, units)
    if strategy.zero == 1 and (adds_wide(strategy) or not is_cast(strategy)):
        # Reduced in place, a message at a time.
        return min(bucket / size * gradient_bytes(experiment), float(PIECE))
    copies = 2 if strategy.experts > 1 and not strategy.zero else 1  # of a bucket: packed
    return float(copies * on_wire(strategy, bucket))


def _gathered(strategy: Strategy, model: Model) -> float:
    """Return the bytes of gathered weights: of the unit in use and the next, or of all."""
    if strategy.zero < 3:
        return 0.0
    units = unit_weights(model, strategy.zero_unit)
    kept = strategy.gather == FORWARD
    return BYTES[strategy.precision] * float(model.parameters if kept else _two(units, units))


def _two(current: Sequence[float], following: Sequence[float]) -> float:
    """Return the most that an entry and the one after it take."""
    return max(
        (one + more for one, more in zip(current, [*following, 0][1:], strict=True)), default=0.0
    )
