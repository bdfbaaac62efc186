"""The explanation of the exchange of compressed gradients; its program is in parallel/compression.py."""

from math import inf
from typing import TYPE_CHECKING

from lib_dlhpc.costs import compression, low_rank
from lib_dlhpc.layout import sizes
from lib_dlhpc.prediction.explanation import Explanation, links_inputs, source_of
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    from lib_dlhpc.prediction.breakdown import Breakdown


def explain_communication(p: "Breakdown") -> Explanation:
    """Return the explanation of the exchange of a scalar prediction."""
    e, total = p.experiment, p.communication
    if e.training.low_rank:
        return _explain_factors(p)
    replicas, pair = sizes(e).data, compression.pair_bytes(e.strategy.precision)
    sent = compression.sent(e.model, compression.density(e.training, inf))
    inputs = [
        ("sparsity", f"{e.training.sparsity:g}", "training.sparsity"),
        ("pairs k of a rank", f"{sent.pairs:,}", "rounded tensor by tensor, 1 or more of each"),
        ("bytes of a pair", f"{pair}", "value and 4 B of index"),
        (
            "sent whole",
            f"{sent.whole:,} numbers",
            "biases, scales, shifts, and tensors that are sent whole",
        ),
        (
            "selection",
            show(compression.selection_time(e), "s"),
            f"{compression.SELECTION_TRAFFIC} numbers read or written per gradient, costs/compression.py",
        ),
        (
            "addition",
            show(compression.addition_time(e, replicas * sent.pairs), "s"),
            "each pair of p ranks is read, and read and written at its destination",
        ),
    ]
    inputs += links_inputs(p)
    inputs.append(("NICs per node", f"{e.machine.nics}", source_of(p, "machine", "nics")))
    return Explanation(
        "communication",
        show(float(total.total), "s"),
        "selection, all-gather of p k pairs, allreduce of what is sent whole, addition; by the cheapest algorithm"
        " for each size",
        tuple(inputs),
        "Lin et al. 2018 (deep gradient compression)",
        "Selection is bound by memory bandwidth. Pairs of different ranks have different indices: the"
        " all-gather grows with p, an allreduce does not."
        + (
            f" The first {e.training.sparsity_warm_up:g} epochs send more: {show(p.warm_up, 's')} in all, part of"
            " the time to train."
            if p.warm_up
            else ""
        ),
    )


def _explain_factors(p: "Breakdown") -> Explanation:
    e, rank = p.experiment, int(p.experiment.training.low_rank)
    sent, steps = low_rank.sent(e.model, rank), ("FIRST", "SECOND", "LAST")
    traffic = [getattr(low_rank, f"{name}_TRAFFIC") for name in steps]
    products = sum(low_rank.product_time(e, each) for each in traffic)
    inputs = [
        ("rank r", f"{rank}", "training.low_rank"),
        ("left and right factors", f"{sent.left + sent.right:,} numbers", "r (rows + columns)"),
        ("sent whole", f"{sent.whole:,} numbers", "vectors, and matrices with larger factors"),
        ("of matrices of", f"{sent.elements:,} numbers", "layers' shapes"),
        ("products", show(products, "s"), f"{sum(traffic)} numbers read or written per element"),
    ]
    inputs += links_inputs(p)
    return Explanation(
        "communication",
        show(float(p.communication.total), "s"),
        "allreduce of the left factors and of what is sent whole, then of the right factors, with matmuls before,"
        " between and after; by the cheapest algorithm for each size",
        tuple(inputs),
        "Vogels et al. 2019 (PowerSGD)",
        "Matmuls are bound by memory bandwidth or FLOP/s; making columns orthonormal takes no time.",
    )
