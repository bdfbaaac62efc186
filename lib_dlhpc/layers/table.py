"""Table: the weights of an embedding on another stage, which a tied layer shares."""

from lib_dlhpc.layers.base.kind import Kind


class Table(Kind):
    """Weights of another stage; computes nothing."""

    stand_in = lookup = True
