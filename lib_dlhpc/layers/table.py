"""Table: the weights of an embedding on another stage, which a tied layer shares."""

from lib_dlhpc.layers.base.kind import Kind, Layer
from lib_dlhpc.layers.embedding import Embedding


class Table(Kind):
    """Weights of another stage; computes nothing."""

    stand_in = lookup = True
    start = Embedding.start

    def __init__(self, layer: Layer) -> None:
        self.shapes = Embedding(layer).shapes
