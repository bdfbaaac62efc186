"""Adapter: products of low rank, added to the queries and the values of a frozen product."""

from math import prod

from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Shape


class Adapter(Kind):
    """y + (z_q B_q beside zeros beside z_v B_v), B_q (rank, queries), B_v (rank, values) (Hu et al. 2021, section 4).

    Its inputs are queries, keys and values side by side (positions, features), and those of rank 2 r that a dense
    layer made of the same positions (positions, 2 r). The sum is in place, and backward reads the second input only.
    It can be priced but not trained, and spec/adapters.py alone places it.
    """

    backward_reads = frozenset({"input"})
    product = True
    several_inputs = True
    sequence = True
    kernels = 6  # of queries and of values: a product, its scale, the sum

    @staticmethod
    def extra_traffic(layer: Layer) -> float:
        """Return the elements that kernels move beside inputs and output: keys stay as they are."""
        *positions, features = layer.output_shape
        options = layer.attributes
        return -2.0 * prod(positions) * (features - options["queries"] - options["values"])


def counts(output: Shape, rank: int, queries: int, values: int) -> Counts:
    """Return the counts; queries, values: their features, at the start and at the end of the output's."""
    weights = rank * (queries + values)
    return Counts(
        output,
        parameters=weights,
        forward_flop=2.0 * weights * prod(output[:-1]),
        attributes={"rank": rank, "queries": queries, "values": values},
    )
