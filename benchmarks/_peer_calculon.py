"""An experiment in Calculon's terms: its own file of the device, the hardware facts of the machine, its step time.

Source: Isaev, McDonald, Dennison & Vuduc, "Calculon: a methodology and tool for high-level co-design of systems and
large language models" (SC 2023); github.com/calculon-ai/calculon.
"""

import copy
import logging
from pathlib import Path
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.measured.calibrated import meet
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import Machine

COMMIT = "caa4b11f8fe1fee3ba57adaacb7590d7deabd053"
# By device; nearest file.
SYSTEMS = {"H100": "h100_80g_nvl8", "A100": "a100_80g", "V100": "a100_80g"}
RECOMPUTE = {"none": "none", "selective": "attn_only", "early-stop": "full", "full": "full"}
ROOMY = 1e6  # GiB: what does not fit there is timed all the same


def step_time(experiment: Experiment, slowdown: float = 1.0, room: float = ROOMY) -> float:
    """Return Calculon's seconds of a step, its compute and memory `slowdown` times as slow.

    room: GiB of a device. Raises SpecError where Calculon has no word for the experiment, or it needs more.
    """
    import calculon

    model = calculon.Llm.Application(_application(experiment))
    system = calculon.System(_system(experiment, slowdown, room))
    run = calculon.Llm(model, logging.getLogger("calculon"))
    try:
        run.compile(system, calculon.Llm.Execution.from_json(_execution(experiment)))
        run.run(system)
    except (calculon.Llm.Error, AssertionError) as error:
        raise SpecError(f"Calculon: {error}") from error
    return float(run.get_stats_json(False)["total_time"])


def slowdown_of(measured: Experiment, seconds: float) -> float:
    """Return by how much Calculon's device must be slower for a measured step; raises SpecError."""
    return meet(seconds, lambda slowdown: step_time(measured, slowdown), 0.1, 100.0)


def _application(experiment: Experiment) -> dict[str, int]:
    model, options = experiment.model, experiment.model.options
    if model.family not in ("gpt", "llama"):
        raise SpecError(f"a {model.family} network")
    hidden, heads = int(options["hidden"]), int(options["heads"])
    between = int(options.get("feed_forward", 4 * hidden))
    # Neither groups of keys nor gates: as many weights in a plain block.
    if model.family == "llama":
        kept = hidden * int(options.get("kv_heads", heads)) // heads
        between = (2 * hidden * (hidden + kept) + 3 * hidden * between - 4 * hidden**2) // (
            2 * hidden
        )
    layers, pipeline = int(options["layers"]), int(experiment.strategy.pipeline)
    chunks = pipeline * int(experiment.strategy.chunks)
    return {
        "hidden": hidden,
        "feedforward": between,
        "seq_size": int(model.input_shape[0]),
        "attn_heads": heads,
        "attn_size": hidden // heads,
        "num_blocks": -(-layers // chunks) * chunks if chunks > pipeline else layers,
    }


def _execution(experiment: Experiment) -> dict[str, Any]:
    s, per_node = experiment.strategy, int(experiment.devices_per_node)
    if s.zero == 3 or s.context > 1 or s.spatial > 1:
        raise SpecError("ZeRO 3 or FSDP" if s.zero == 3 else "context or spatial parallelism")
    replicas = int(experiment.devices) // int(s.replica)
    within = [
        int(s.tensor) <= per_node,
        int(s.replica) <= per_node,
        int(experiment.devices) <= per_node,
    ]
    nets = [0 if fits else 1 for fits in within]
    return {
        "num_procs": int(experiment.devices),
        "tensor_par": int(s.tensor),
        "pipeline_par": int(s.pipeline),
        "data_par": replicas,
        "tensor_par_net": nets[0],
        "pipeline_par_net": nets[1],
        "data_par_net": nets[2],
        "batch_size": int(s.batch) * replicas,
        "microbatch_size": int(s.batch) // int(s.microbatches),
        "datatype": "float8" if s.precision == "fp8" else "float16",
        "fused_activation": False,
        "attention_type": "multihead",
        "activation_recompute": RECOMPUTE[s.recompute],
        "pipeline_interleaving": int(s.chunks) if s.schedule == "interleaved" else 1,
        "optimizer_sharding": bool(s.zero) and replicas > 1,
        "tensor_par_comm_type": "rs_ag" if s.sequence_parallel and s.tensor > 1 else "ar",
        "tensor_par_overlap": "none",
        "seq_par_ag_redo": bool(s.sequence_parallel and s.tensor > 1 and s.recompute != "full"),
        "data_par_overlap": bool(experiment.overlap) and replicas > 1,
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "training": True,
    }


def _system(experiment: Experiment, slowdown: float, room: float) -> dict[str, Any]:
    """Return the file of the nearest device, with the rates of this machine; efficiencies are Calculon's."""
    import calculon

    machine: Machine = experiment.machine
    device = machine.device
    name = next((file for part, file in SYSTEMS.items() if part.lower() in device.name), None)
    if name is None:
        raise SpecError(f"no system file of a {device.name}")
    root = Path(calculon.__file__).parents[1] / "systems"
    table: dict[str, Any] = copy.deepcopy(calculon.io.read_json_file(str(root / f"{name}.json")))
    table["matrix"]["float16"]["tflops"] = device.peak["fp16"] / 1e12 / slowdown
    vector = table["vector"]["float16"]
    if "v100" in device.name:
        vector["tflops"] = 2 * device.peak["fp32"] / 1e12
    vector["tflops"] /= slowdown
    table["mem1"] |= {"GiB": room, "GBps": device.memory_bandwidth / 1e9 / slowdown}
    inner, outer = table["networks"]
    per_node = int(machine.devices_per_node)
    inner |= {"bandwidth": machine.intra_node.bandwidth / 1e9, "size": per_node}
    outer["bandwidth"] = machine.inter_node.bandwidth * machine.nics / per_node / 1e9
    return table
