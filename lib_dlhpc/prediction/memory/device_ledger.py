"""Memory of a device that holds the whole network: every term at the peak of training, against the capacity.

Networks that are partitioned, or whose state is sharded: rank_memory.py.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from lib_dlhpc.costs.compression import ARRAYS, density, pair_bytes, sent
from lib_dlhpc.costs.model_state import MASTER_BYTES, model_state_bytes, state_each
from lib_dlhpc.costs.outer_optimizer import outer_arrays
from lib_dlhpc.costs.roofline import BYTES, MIXED
from lib_dlhpc.costs.stored_activations import backward_extra, stored_bytes
from lib_dlhpc.costs.wire_format import on_wire
from lib_dlhpc.layout import Part
from lib_dlhpc.prediction.explanation import Explanation, source_of, stored_narrow
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    from lib_dlhpc.prediction.breakdown import Breakdown


def ledger(experiment: Experiment) -> dict[str, Any]:
    """Return the bytes of each term on one device; their sum is the peak of a step.

    Activations are the layer outputs stored for backward, with ReLU and sums in place; the working set is what
    backward adds to them at its peak (costs/stored_activations.py). If servers update, they hold the optimizer
    state. Not modeled: fragmentation, and workspace of libraries (columns of a convolution) beyond the device's
    reserved memory.
    """
    model, strategy = experiment.model, experiment.strategy
    whole = Part(model, 0)
    updates = strategy.update != "asynchronous"
    size = BYTES[strategy.precision]
    shape = experiment.dataset.sample_shape or model.input_shape
    gradients = model.trained * size
    state = state_each(model, strategy.optimizer) + outer_arrays(experiment)
    if np.any(experiment.training.sparsity):
        state = ARRAYS
    if experiment.training.low_rank:
        state = state + 1  # errors; bases are small
    buffer = on_wire(strategy, np.minimum(strategy.bucket, gradients))
    return {
        "weights": model.parameters * size,
        "master weights": model.trained * MASTER_BYTES * (updates and strategy.precision in MIXED),
        "gradients": gradients,
        "optimizer state": model.trained * state * max(size, MASTER_BYTES) * updates,
        "activations": strategy.batch * stored_bytes(whole, size),
        "working set": strategy.batch * backward_extra(whole, size),
        "input batch": strategy.batch * float(np.prod(shape)) * size,
        "communication buffer": _compressed(experiment)
        if experiment.compressed
        else np.where(updates & (experiment.devices > 1), buffer, 0.0)[()],
        "driver and workspace": experiment.machine.device.reserved_memory,
    }


def _compressed(experiment: Experiment) -> float:
    """Return the bytes of what a rank receives of compressed gradients; the experiment holds no arrays."""
    if experiment.training.low_rank:
        from lib_dlhpc.costs import low_rank

        factors = low_rank.sent(experiment.model, int(experiment.training.low_rank))
        return float(sum(factors[:3]) * BYTES[experiment.strategy.precision])
    # Density is highest in the first epoch.
    known = sent(experiment.model, density(experiment.training, 0.0))
    precision = experiment.strategy.precision
    return float(
        experiment.devices * known.pairs * pair_bytes(precision) + known.whole * BYTES[precision]
    )


def server_bytes(experiment: Experiment) -> Any:
    """Return the bytes on one parameter server: its shard of weights, optimizer state and a gradient."""
    strategy = experiment.strategy
    if strategy.update != "asynchronous":
        return 0.0
    whole = model_state_bytes(experiment.model.parameters, strategy.precision, strategy.optimizer)
    return whole / strategy.servers + experiment.machine.device.reserved_memory


def attention_activation_saved(heads: Any, sequence: Any, hidden: Any) -> Any:
    """Return the share of a transformer layer's activations that selective recomputation frees.

    A layer holds s b h (34 + 5 a s / h) bytes, of which 5 a s / h is recomputed cheaply
    (Korthikanti et al. 2022, section 5).
    """
    quadratic = 5 * heads * sequence / hidden
    return quadratic / (34 + quadratic)


def explain_memory(p: "Breakdown") -> Explanation:
    """Return the explanation of the memory of one device."""
    device = p.experiment.machine.device
    terms = tuple((name, show(float(size), "B"), "ledger") for name, size in p.memory.items())
    return Explanation(
        "memory of one device",
        show(float(p.memory_total), "B"),
        "sum of the terms; activations are the layer outputs stored for backward, ReLU and sums in place",
        (*terms, ("capacity", show(device.memory, "B"), source_of(p, "device", "memory"))),
        "layer shapes; Rajbhandari et al. 2020 (ZeRO) for model states",
        "No fragmentation and no recomputation. Parameter servers, not devices, hold optimizer state and"
        " master weights." + stored_narrow(p),
    )
