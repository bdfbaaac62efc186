"""Every number explained: its formula, its inputs and their sources, its range of validity."""

from collections.abc import Callable
from typing import TypeAlias

from lib_dlhpc.costs import low_precision
from lib_dlhpc.costs.groups import allreduces
from lib_dlhpc.costs.muon import MUON, matrices_of, orthogonalization_time
from lib_dlhpc.costs.outer_optimizer import has_outer, outer_time
from lib_dlhpc.costs.roofline import orthogonal_rate, peak_rate
from lib_dlhpc.prediction.accuracy import explain_accuracy
from lib_dlhpc.prediction.breakdown import Breakdown
from lib_dlhpc.prediction.communication import asynchronous, compressed
from lib_dlhpc.prediction.communication.overlap import explain_exposed
from lib_dlhpc.prediction.energy.energy import explain_carbon, explain_energy
from lib_dlhpc.prediction.explanation import Explanation, links_inputs, source_of, wire_inputs
from lib_dlhpc.prediction.failures.resilience import explain_resilience
from lib_dlhpc.prediction.memory.device_ledger import explain_memory
from lib_dlhpc.prediction.reports.explain_split import explain_split
from lib_dlhpc.prediction.storage.io import explain_input
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import AUTO, FORMATS, FP8, NARROW, NVFP4, NVFP4_ALL
from lib_dlhpc.spec.units import count, format_plain
from lib_dlhpc.spec.units import format_quantity as show

__all__ = ["Explanation", "explain"]

# Appended to the formula of computation, where rates of layers were measured.
MEASURED = (
    "; layers and updates of a kind with measured rates: launch + FLOP / rate + bytes / bandwidth,"
    " each matmul of backward likewise"
)

# Appended where the device's file says more of its kernels.
IN_NARROW = (
    "; linear layers at the peak of {}, after casts of what they read, {} B per element"
    " (costs/low_precision.py)"
)
WIDE = {
    FP8: "linear layers except the last",
    NVFP4_ALL: "linear layers except the last",
    NVFP4: "linear layers except the last and those of the last 15% of blocks",
}
KERNELS = (
    "; matmuls in waves of tiles, and no layer starts before the host has issued its kernels"
    " (costs/gemm_tiles.py)"
)


def explain(prediction: Breakdown) -> list[Explanation]:
    """Return the explanation of each term of a scalar prediction, in the order of a step."""
    if prediction.experiment.strategy.is_split:
        first, last = (
            (_compute, _straggler),
            (explain_input, _speedup, _utilization, explain_energy, _time),
        )
        return [
            *(part(prediction) for part in first),
            *explain_split(prediction),
            *(part(prediction) for part in last),
            *explain_accuracy(prediction),
            *_where_known(prediction),
        ]
    served = prediction.experiment.strategy.update == "asynchronous"
    exchange = SERVED if served else EXCHANGE
    if prediction.experiment.compressed:
        exchange = COMPRESSED
    parts = [part(prediction) for part in (_compute, *exchange, *REST)]
    return [*parts, *explain_accuracy(prediction), *_where_known(prediction)]


def _compute(p: Breakdown) -> Explanation:
    e, device = p.experiment, p.experiment.machine.device
    asked = FORMATS.get(e.strategy.precision, e.strategy.precision)
    casts = low_precision.is_used(e.model)
    asked = "bf16" if asked in NARROW and not casts else asked
    rate = peak_rate(device, asked)
    # Mixed precision without fast 16-bit arithmetic computes in another one.
    used = max(device.peak, key=lambda key: (device.peak[key] == rate, key == asked))
    inputs = [*_peak_inputs(p, used, rate), *_narrow_inputs(p), *_kernel_inputs(p)]
    inputs += _measured_inputs(p) if device.layers else []
    inputs += [*_muon_inputs(p), *_scale_inputs(p)]
    return Explanation(
        "compute",
        show(float(p.compute), "s"),
        "Σ over layers of max((w + w½) / (peak × efficiency), bytes / memory bandwidth), forward once and"
        " backward twice (once where weights are frozen), plus the optimizer's update; scaled to the measured rate if"
        " there is one"
        + (IN_NARROW.format(used, low_precision.FORMS[used].cast) if casts else "")
        + (KERNELS if device.dispatch or device.multiprocessors else "")
        + (MEASURED if device.layers else ""),
        tuple(inputs),
        "Williams, Waterman & Patterson 2009 (roofline); Hockney 1985 (half-performance size)",
        "Kernels run serially; no fusion, no Winograd or FFT convolution. Without a measured rate this is"
        " an estimate: 37% off in the median over published single-device rates, 117% at worst; with one it"
        " is exact at that point." + "".join(f" Note: {warning}" for warning in e.warnings),
    )


def _peak_inputs(p: Breakdown, precision: str, rate: float) -> list[tuple[str, str, str]]:
    """Return what the roofline reads of the model and the device; rate: peak FLOP/s in `precision`."""
    e, device = p.experiment, p.experiment.machine.device
    share = "fp8_efficiency" if precision == FP8 and device.fp8_efficiency else "efficiency"
    return [
        (
            "FLOP per sample, forward",
            show(e.model.forward_flop, "FLOP"),
            "counted from the layers' shapes",
        ),
        ("batch per device", f"{e.strategy.batch}", "given"),
        (
            f"peak rate, {precision}",
            show(rate, "FLOP/s"),
            source_of(p, "device", f"peak.{precision}"),
        ),
        (
            "share of the peak that large kernels reach",
            f"{getattr(device, share):.0%}",
            source_of(p, "device", share),
        ),
        (
            "kernel size at which half of that is reached",
            show(device.half_work, "FLOP"),
            source_of(p, "device", "half_work"),
        ),
        (
            "memory bandwidth",
            show(device.memory_bandwidth, "B/s"),
            source_of(p, "device", "memory_bandwidth"),
        ),
    ]


def _narrow_inputs(p: Breakdown) -> list[tuple[str, str, str]]:
    """Return what is computed in a narrow format, and at which rate the rest is, if anything is."""
    e, device = p.experiment, p.experiment.machine.device
    if not low_precision.is_used(e.model):
        return []
    asked = e.strategy.precision
    form = FORMATS[asked]
    share = sum(x.forward_flop for x in e.model.layers if x.narrow) / e.model.forward_flop
    other = show(peak_rate(device, "bf16"), "FLOP/s")
    return [
        (f"FLOP in {form}", f"{share:.1%}", WIDE[asked]),
        ("peak rate of the others, bf16", other, source_of(p, "device", "peak.bf16")),
    ]


def _kernel_inputs(p: Breakdown) -> list[tuple[str, str, str]]:
    """Return what the device's file says of its kernels, beside the roofline."""
    device = p.experiment.machine.device
    shown = {
        "dispatch": ("host's time per kernel", show(device.dispatch, "s")),
        "list_copy": ("host's time per copy in lists of ZeRO 3", show(device.list_copy, "s")),
        "exchange_call": ("call of an expert exchange", show(device.exchange_call, "s")),
        "multiprocessors": ("multiprocessors", f"{device.multiprocessors}"),
        "streaming": ("share of the bandwidth that kernels reach", f"{device.streaming:.0%}"),
        "attention": ("share of the peak that fused attention reaches", f"{device.attention:.0%}"),
    }
    return [
        (*words, source_of(p, "device", name))
        for name, words in shown.items()
        if getattr(device, name)
    ]


def _muon_inputs(p: Breakdown) -> list[tuple[str, str, str]]:
    """Return what Muon's iterations take on one device that has all of the network's matrices."""
    if p.experiment.strategy.optimizer != MUON:
        return []
    model, device = p.experiment.model, p.experiment.machine.device
    flop = sum(each.flop for _, each in matrices_of(model))
    seconds = orthogonalization_time(model, device, orthogonal_rate(device))
    return [
        ("FLOP to orthogonalize all matrices", show(flop, "FLOP"), "5 (4 m² n + 2 m³) each"),
        ("on one device", show(float(device.slowdown * seconds), "s"), "bf16; costs/muon.py"),
    ]


def _scale_inputs(p: Breakdown) -> list[tuple[str, str, str]]:
    """Return the inputs of [calibration]: a measured rate, or a factor."""
    given, source = p.experiment.calibration, "[calibration] of the experiment"
    scale = format_plain(float(p.compute_scale))
    if given.rate:
        measured = f"{given.rate:,.1f} samples/s on {count(given.devices, 'device')}"
        return [("measured rate", measured, source), ("measured over roofline", scale, "computed")]
    return [("measured over roofline", scale, source)] if given.compute_scale else []


def _measured_inputs(p: Breakdown) -> list[tuple[str, str, str]]:
    """Return the inputs of a calibration: kinds of layers with measured rates, overhead of a pass, slowdown factor."""
    device = p.experiment.machine.device
    present = {layer.traits.rate_key(layer) for layer in p.experiment.model.layers}
    kinds = sorted({*present, p.experiment.strategy.optimizer} & {*device.layers})
    return [
        ("kinds with measured rates", ", ".join(kinds) or "none of this network's", "calibration"),
        ("overhead of a pass", show(device.overhead, "s"), source_of(p, "device", "overhead")),
        ("slowdown factor", f"{device.slowdown:.2f}", source_of(p, "device", "slowdown")),
    ]


def _straggler(p: Breakdown) -> Explanation:
    e, jitter = p.experiment, p.experiment.machine.jitter
    every, local = _local_steps(p)
    return Explanation(
        "waiting for the slowest",
        show(float(p.straggler_wait), "s"),
        "compute × jitter × m_p" + (" / √H" if local else "") + ", with m_p the expected largest of"
        " p standard normal numbers"
        + ("; over H steps a rank's jitter grows with √H" if local else ""),
        (
            ("devices p", f"{int(e.devices)}", "given"),
            (
                "jitter, sigma over mean of a device's step",
                f"{jitter:.1%}",
                source_of(p, "machine", "jitter"),
            ),
            *every,
        ),
        "Blom 1958 for m_p",
        "Step times of ranks are independent and normally distributed. A persistent straggler is not modeled.",
    )


def _local_steps(p: Breakdown) -> tuple[list[tuple[str, str, str]], bool]:
    """Return the number of steps between two exchanges, as inputs, and whether updates are local."""
    strategy = p.experiment.strategy
    local = strategy.update == "local"
    return [("local steps H", f"{strategy.local_steps}", "given")] * local, local


def _outer(p: Breakdown) -> list[tuple[str, str, str]]:
    """Return the outer update that follows an average, as an input."""
    if not has_outer(p.experiment):
        return []
    seconds = show(float(outer_time(p.experiment)), "s")
    return [("outer update", seconds, "memory traffic; once in H steps (Douillard et al. 2023)")]


def _communication(p: Breakdown) -> Explanation:
    e, total = p.experiment, p.communication
    every, local = _local_steps(p)
    inputs = [
        (
            "weights n" if local else "gradients n",
            show(float(p.memory["gradients"]), "B"),
            "parameters × bytes of the precision",
        ),
        ("bucket", show(float(e.strategy.bucket), "B"), "given"),
        *wire_inputs(p),
        *every,
        *_outer(p),
    ]
    inputs += links_inputs(p)
    inputs += [
        ("NICs per node", f"{e.machine.nics}", source_of(p, "machine", "nics")),
        ("reduction γ", "3 / memory bandwidth", "two reads and a write for each number"),
        ("latency part", show(float(total.latency), "s"), "computed"),
        ("bandwidth part", show(float(total.bandwidth), "s"), "computed"),
        ("reduction part", show(float(total.reduction), "s"), "computed"),
    ]
    return Explanation(
        "communication",
        show(float(total.total), "s"),
        f"for each bucket: {_allreduces(e)}; for two levels, node and network, see its file in lib_dlhpc/schedules"
        + ("; once in H steps, so a step has 1/H of it (Lin et al. 2020)" if local else ""),
        tuple(inputs),
        "named with the formula",
        "Full-duplex links; no other traffic on the network; all NICs of a node in use, even by a leader."
        " Protocol switches of the library (eager, rendezvous) are not modeled.",
    )


def _allreduces(e: Experiment) -> str:
    """Return the formula of the allreduce that is named, or of those that are chosen for the buckets."""
    found = dict.fromkeys(allreduces(e).values())
    formulas = "; or ".join(f"{one.label}: {one.formula}" for one in found) or "nothing"
    return f"the cheapest for its size, {formulas}" if e.strategy.allreduce == AUTO else formulas


def _speedup(p: Breakdown) -> Explanation:
    e = p.experiment
    split = int(e.strategy.replica) > 1
    return Explanation(
        "speedup",
        f"{float(p.speedup):,.1f}",
        "throughput over that of one device with the unsplit network: replicas × single device / step;"
        " efficiency = speedup / devices",
        (
            (
                "replicas",
                f"{int(e.devices) // int(e.strategy.replica):,}",
                "devices / devices of a replica",
            ),
            ("batch of a replica", f"{e.strategy.batch}", "given"),
            (
                "single device",
                show(float(p.single_device), "s"),
                "roofline of the unsplit network, for that batch",
            ),
            ("step", show(float(p.step_time), "s"), "sum of the terms"),
            ("efficiency", f"{float(p.efficiency):.1%}", "computed"),
        ),
        "definition",
        "The single device never waits for data, other devices or checkpoints."
        + " The unsplit network may not fit in its memory: then this cannot be measured." * split,
    )


def _utilization(p: Breakdown) -> Explanation:
    e, peak = (
        p.experiment,
        float(peak_rate(p.experiment.machine.device, p.experiment.strategy.precision)),
    )
    return Explanation(
        "MFU",
        f"{float(p.utilization):.1%}",
        "throughput × FLOP of a sample / devices / peak",
        (
            ("throughput", f"{show(float(p.throughput), '')} samples/s", "global batch / step"),
            (
                "FLOP of a sample",
                show(e.model.train_flop, "FLOP"),
                "forward and backward, from the layers",
            ),
            ("devices", f"{int(e.devices):,}", "given"),
            ("peak", show(peak, "FLOP/s"), f"of the device in {e.strategy.precision}"),
        ),
        "Chowdhery et al. 2022, arXiv:2204.02311, section 4.1",
        "Recomputed activations do not count. FLOP of a sample include attention in full, masked or not, and the last"
        " layer. 6 FLOP per weight and token leave out attention, and count embedding tables, a lookup.",
    )


def _time(p: Breakdown) -> Explanation:
    e = p.experiment
    return Explanation(
        "time to train",
        show(float(p.time_to_train), "s"),
        "start + steps × step; an epoch has ceil(samples / global batch) steps, the last one with the remainder",
        (
            ("samples", f"{int(e.dataset.trained):,}", "data set without the test set"),
            ("epochs", f"{e.run.epochs:g}", "given"),
            ("global batch", f"{int(e.global_batch):,}", "batch × devices"),
            ("step", show(float(p.step_time), "s"), "sum of the terms above"),
            ("start", show(float(p.start_time), "s"), _starts_with(e)),
        ),
        "definition",
        "The epochs are assumed to suffice at this batch: large batches, stale gradients and local steps may"
        " need more epochs or a tuned learning rate. No validation passes. No failures: these are listed"
        " separately, where machine.node_mtbf is known.",
    )


def _starts_with(e: Experiment) -> str:
    """Return in words what precedes the first step."""
    if e.storage.access == "stage":
        return "every node copies the data set, then every device lists every directory"
    if e.storage.access == "cooperative":
        return "every node copies its part of the data set, with all metadata"
    return (
        "none: an index is read"
        if e.storage.format == "packed"
        else "every device lists every directory"
    )


def _where_known(prediction: Breakdown) -> list[Explanation]:
    """Return what is explained only where the machine states its grid, or how often its nodes fail."""
    carbon = [explain_carbon(prediction)] * bool(prediction.experiment.machine.carbon_intensity)
    return [*carbon, *explain_resilience(prediction)]


Parts: TypeAlias = tuple[Callable[[Breakdown], Explanation], ...]
EXCHANGE: Parts = (_straggler, _communication, explain_exposed)
COMPRESSED: Parts = (_straggler, compressed.explain_communication, explain_exposed)
SERVED: Parts = (
    asynchronous.explain_waiting,
    asynchronous.explain_communication,
    asynchronous.explain_exposed,
    asynchronous.explain_staleness,
)
REST: Parts = (explain_input, explain_memory, _speedup, _utilization, explain_energy, _time)
