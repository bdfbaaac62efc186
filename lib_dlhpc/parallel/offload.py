"""Offloading: what moves between a device and its host (or a storage tier) beside each pass and the update.

A pass waits for its own traffic at its end. The state moves during the rest of the last backward pass and the update.
Sources: Awan et al. 2018 (OC-DNN); Rajbhandari et al. 2021 (ZeRO-Infinity).
"""

from lib_dlhpc.costs import roofline
from lib_dlhpc.costs.offload import offload_link, offload_traffic
from lib_dlhpc.costs.stored_activations import stored_bytes
from lib_dlhpc.layout import Part
from lib_dlhpc.parallel.passes import Passes
from lib_dlhpc.program import Instruction, Transfer, Wait
from lib_dlhpc.spec.experiment import Experiment

STREAM, LABEL = "copy", "what is offloaded"


def offloaded(
    experiment: Experiment, held: tuple[Part, ...], every: tuple[Passes, ...]
) -> tuple[Passes, ...]:
    """Return the passes of a rank's parts with what moves beside each, and the optimizer state beside the last."""
    if experiment.strategy.offload == "none":
        return every
    moved = tuple(_with_moves(experiment, passes) for passes in every)
    if experiment.strategy.offload == "all":
        parameters = sum(part.model.parameters for part in held)
        away = offload_traffic(experiment, parameters, 0.0)
        state = _move(experiment, away.update_out, away.update_in, "state")
        moved[0].last.insert(1, state)  # behind the traffic of the pass itself
    return moved


def _with_moves(experiment: Experiment, passes: Passes) -> Passes:
    strategy = experiment.strategy
    size, batch = roofline.BYTES[strategy.precision], strategy.batch / strategy.microbatches
    left = batch * stored_bytes(passes.part, size, strategy.recompute, True)
    away = offload_traffic(experiment, passes.part.model.parameters, left)
    there, back = (away.forward_out, away.forward_in), (away.backward_out, away.backward_in)
    return Passes(
        passes.part,
        _beside(experiment, passes.forward, *there),
        _beside(experiment, passes.backward, *back),
        _beside(experiment, passes.last, *back),
        passes.hidden,
        first=passes.first and _beside(experiment, passes.first, *there),
    )


def _beside(
    experiment: Experiment, instructions: list[Instruction], out: float, back: float
) -> list[Instruction]:
    if not out and not back:
        return instructions
    move = _move(experiment, out, back, "pass")
    return [move, *instructions, Wait("offload", STREAM, "pass", LABEL)]


def _move(experiment: Experiment, out: float, back: float, key: str) -> Transfer:
    seconds = float(offload_link(experiment).seconds(out, back))
    return Transfer("offload", STREAM, seconds, float(out + back), key)
