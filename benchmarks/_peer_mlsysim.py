"""An experiment in mlsysim's terms: its own entry of the device, the links of the machine, its step time.

Source: mlsysim on PyPI, mlsysim.solvers.DistributedModel.
"""

import warnings
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.measured.calibrated import meet
from lib_dlhpc.spec.experiment import Experiment

VERSION = "0.3.0"
DEVICES = {"h100": "H100", "a100": "A100", "v100": "V100", "p100": "P100", "k80": "K80"}
USUAL = 0.5  # the efficiency that mlsysim takes where none is given
LEAST = 1e-4


def step_time(experiment: Experiment, efficiency: float = USUAL) -> float:
    """Return mlsysim's seconds of a step; raises SpecError where mlsysim has no word for the experiment."""
    from mlsysim.solvers import DistributedModel

    s = experiment.strategy
    if s.context > 1 or s.spatial > 1:
        raise SpecError("context or spatial parallelism")
    tokens = _tokens(experiment)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # precisions that its entry of a device lacks
        found = DistributedModel().solve(
            _workload(experiment),
            _fleet(experiment),
            batch_size=int(s.batch) * (int(experiment.devices) // int(s.replica)),
            precision=s.precision,
            efficiency=efficiency,
            tp_size=int(s.tensor),
            pp_size=int(s.pipeline),
            v_stages=int(s.chunks) if s.schedule == "interleaved" else 1,
            microbatch_count=int(s.microbatches),
            zero_stage=int(s.zero),
            activation_recomputation=s.recompute in ("early-stop", "full"),
            overlap_comm=bool(experiment.overlap),
            seq_len=tokens,
        )
    return float(found.step_latency_total.m_as("second"))


def efficiency_of(measured: Experiment, seconds: float) -> float:
    """Return the efficiency at which mlsysim meets a measured step, at most 1; raises SpecError."""
    return meet(seconds, lambda efficiency: step_time(measured, efficiency), LEAST, 1.0)


def _tokens(experiment: Experiment) -> int:
    return int(experiment.model.input_shape[0]) if "heads" in experiment.model.options else 1


def _workload(experiment: Experiment) -> Any:
    from mlsysim.core.units import Q_
    from mlsysim.models.types import CNNWorkload, TransformerWorkload

    model, options = experiment.model, experiment.model.options
    shared = {
        "name": model.name or model.family,
        "architecture": model.family,
        "parameters": Q_(model.parameters, "count"),
        "inference_flops": Q_(model.forward_flop / _tokens(experiment), "flop"),
    }
    if "heads" not in options:
        return CNNWorkload(**shared)
    sizes = {"hidden_dim": int(options["hidden"]), "heads": int(options["heads"])}
    return TransformerWorkload(layers=int(options["layers"]), **sizes, **shared)


def _fleet(experiment: Experiment) -> Any:
    import mlsysim
    from mlsysim.core.units import Q_
    from mlsysim.systems.types import Fleet, NetworkFabric, Node

    machine = experiment.machine
    name = next((own for part, own in DEVICES.items() if part in machine.device.name), None)
    if name is None:
        raise SpecError(f"no entry of a {machine.device.name}")
    inner, outer = machine.intra_node, machine.inter_node
    accelerator = getattr(mlsysim.Hardware.Cloud, name)
    node = Node(
        name=machine.name,
        accelerator=accelerator,
        accelerators_per_node=int(experiment.devices_per_node),
        intra_node_bw=Q_(inner.bandwidth * inner.efficiency, "byte/s"),
        nics_per_node=int(machine.nics),
    )
    fabric = NetworkFabric(
        name=outer.name,
        bandwidth=Q_(outer.bandwidth * outer.efficiency, "byte/s"),
        latency=Q_(outer.latency, "s"),
        oversubscription_ratio=float(machine.oversubscription),
    )
    return Fleet(name=machine.name, node=node, count=int(experiment.strategy.nodes), fabric=fabric)
