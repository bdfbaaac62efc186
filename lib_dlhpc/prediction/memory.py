"""Memory ledger of one device: every term at the peak of training, against the capacity."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs.compute import BYTES, MIXED, STATE
from lib_dlhpc.costs.state import MASTER_BYTES, model_state_bytes
from lib_dlhpc.costs.stored_activations import frees_output, moved_elements, pending_gradients
from lib_dlhpc.prediction.explanation import Explanation, source_of
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    from lib_dlhpc.prediction.breakdown import Breakdown


def ledger(experiment: Experiment) -> dict[str, Any]:
    """Return the bytes of each term on one device; their sum is the peak of a step.

    Activations are the layer outputs stored for backward, with ReLU and sums in place. Backward frees them
    from the last layer to the first, and holds the gradients of one layer's input and output at a time:
    the working set is what they add to the activations at the peak. If servers update, they hold the optimizer
    state. Not modeled: fragmentation, recomputation, and workspace of libraries (columns of a convolution)
    beyond the device's reserved memory.
    """
    model, strategy = experiment.model, experiment.strategy
    updates = strategy.update != "asynchronous"
    size = BYTES[strategy.precision]
    shape = experiment.dataset.sample_shape or model.input_shape
    gradients = model.parameters * size
    return {
        "weights": model.parameters * size,
        "master weights": model.parameters
        * MASTER_BYTES
        * (updates and strategy.precision in MIXED),
        "gradients": gradients,
        "optimizer state": model.parameters
        * STATE[strategy.optimizer]
        * max(size, MASTER_BYTES)
        * updates,
        "activations": strategy.batch * float(kept(model).sum() * size + model.mask_bytes),
        "working set": strategy.batch * float(working_set(model)) * size,
        "input batch": strategy.batch * float(np.prod(shape)) * size,
        "communication buffer": np.where(
            updates & (experiment.devices > 1), np.minimum(strategy.bucket, gradients), 0.0
        )[()],
        "driver and workspace": experiment.machine.device.reserved_memory,
    }


@lru_cache(maxsize=256)
def kept(model: Model) -> NDArray[np.float64]:
    """Return the elements of a sample that each layer stores for backward.

    They are the layer's `stored`, except outputs that only sums read, of layers that do not need them
    either: the backward of a sum reads no input, and a sum overwrites one (`out += identity` in PyTorch's ResNet).
    """
    readers: dict[str, set[str]] = {}
    for layer in model.layers:
        for name in layer.inputs:
            readers.setdefault(name, set()).add(layer.kind)
    summed = [frees_output(layer) and readers.get(layer.name) == {"add"} for layer in model.layers]
    return np.where(summed, 0.0, model.layer_stored)


@lru_cache(maxsize=256)
def working_set(model: Model) -> float:
    """Return the elements a sample by which backward's peak exceeds all stored activations.

    The output of a layer that does not need it is free by then: its readers' backward passes are done.
    The gradient of an element-wise layer's input overwrites that of its output (PyTorch allocates a second
    array, visible if one such layer is most of the network), and samples have no gradient. A gradient to
    which several layers add is held until the last of them.
    """
    held, moved = np.cumsum(kept(model)), moved_elements(model)
    for index, layer in enumerate(model.layers):
        if layer.traits.elementwise or layer.inputs == ("input",):
            moved[index] -= model.layer_input_elements[index]
        if frees_output(layer):
            moved[index] -= kept(model)[index]
    return max(0.0, float((held + moved + pending_gradients(model)).max() - held[-1]))


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
        " master weights.",
    )
