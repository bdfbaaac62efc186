"""Lightning indexer: which keys each query of sparse attention reads (DeepSeek-AI 2025, "DeepSeek-V3.2-Exp")."""

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Site

INDEX = 4  # bytes of a chosen position


class Indexer(Kind):
    """The `chosen` positions with the largest sum over heads of w relu(q k), of those up to a query (equation 1).

    Its inputs are its own queries (positions, heads * size), one key of each position (positions, size), and the
    weights of its heads (positions, heads). Priced, not trained. In backward the loss of the indexer reaches the scores
    of chosen positions alone (section 2.1.1, sparse training stage). Each rank of a tensor group computes all of it
    (deepseek-ai/DeepSeek-V3.2-Exp, inference/model.py). Not priced: the matrix of scores between the product and the
    selection.
    """

    backward_reads = frozenset({"input"})
    product = several_inputs = replicated = True
    wide_inputs = (2,)

    @staticmethod
    def describe(site: Site, heads: int, chosen: int) -> Counts:
        """Return the counts: positions and their scores; the causal mask does not reduce the FLOP."""
        (positions, width), *others = site.shapes
        size = width // heads
        if others != [(positions, size), (positions, heads)] or not chosen > 0:
            raise SpecError(
                f"{site.name}: chosen = {chosen} of {', '.join(map(str, site.shapes))}; legal: 1 or more, of queries of"
                f" {heads} heads, a key of one head, and a weight for each head."
            )
        seen = min(chosen, positions)
        return Counts(
            (positions, seen),
            forward_flop=2.0 * positions**2 * width,
            stored=0,
            mask_bytes=INDEX * positions * seen,
            attributes={"heads": heads, "size": size, "chosen": chosen},
        )

    @staticmethod
    def repeated_flop(layer: Layer) -> float:
        """Return the FLOP by which backward differs from twice those of forward: it skips what is not chosen."""
        positions, seen = layer.output_shape
        return 2 * (seen / positions - 1) * layer.forward_flop

    @staticmethod
    def computed_part(layer: Layer) -> float:
        """Return which part of the products the causal mask leaves."""
        positions = layer.output_shape[0]
        return (positions + 1) / (2 * positions)
