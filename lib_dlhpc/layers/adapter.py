"""Adapter: products of low rank, added to what a frozen product makes, as to its queries and its values."""

from math import prod

from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Shape


class Adapter(Kind):
    """y + z B, for each of the products that lie side by side in y, B of (rank, width) (Hu et al. 2021, section 4.1).

    Its inputs are y (positions, features), and all z side by side (positions, products x rank), which a dense layer
    made of what y was made of. widths: features of the products that are adapted; others stay as they are. The sum is
    in place, and backward reads the second input only. It can be predicted but not trained, and spec/adapters.py alone
    places it.
    """

    backward_reads = frozenset({"input"})
    product = True
    several_inputs = True
    wide_inputs = (1,)
    sequence = True
    kernels = 6  # of two products, as of queries and of values: B, its scale, the sum

    @staticmethod
    def extra_traffic(layer: Layer, size: int) -> float:
        """Return the elements that kernels move beside inputs and output, less what stays as it is."""
        *positions, features = layer.output_shape
        return -2.0 * prod(positions) * (features - sum(layer.attributes["widths"]))


def counts(output: Shape, rank: int, widths: tuple[int, ...], adapted: str) -> Counts:
    """Return the counts; adapted: the strategy's choice of products."""
    weights = rank * sum(widths)
    return Counts(
        output,
        parameters=weights,
        forward_flop=2.0 * weights * prod(output[:-1]),
        attributes={"rank": rank, "widths": widths, "adapted": adapted},
    )
