"""Who holds what part of a network, and which messages that needs: communication is a layer.

From an experiment comes, for each rank, the local form of the layers it has, and between them layers that
communicate. predict prices that graph, simulate plays it, train runs it.

groups.py    which ranks split what together
cuts.py      parts of a range
graph.py     the graph of one rank while it is made
tensor.py    tensor parallelism: columns, rows, heads, positions
spatial.py   spatial parallelism: rows and their halos
experts.py   expert parallelism: replicas that share out experts
stages.py    where a pipeline cuts the network
parts.py     parts(experiment, rank): all of it together
limits.py    what can be priced but not trained

Layers that communicate, beside those of the model:

    exchange   forward and backward: none, all_reduce, all_gather, slice or reduce_scatter, in `group`,
               along `axis` of a sample, cut at `cuts`
    halo       rows of others: `owned` and `needed` are the rows that each rank has and wants; those beyond
               the edge are `fill`. What a rank has itself it never asks others for
    receive    what the stage before made, under its name
    table      weights of an embedding that another stage has as well

Local layers say in their attributes which `part` of each parameter the rank has, as {name: (axis, ranges)},
which `elements` of the output, as (axis, ranges), what the `whole` layer is, and over which groups beside
data its gradients are to be summed (`sum`).
"""

from lib_dlhpc.layout.experts import alike_group, expert_group
from lib_dlhpc.layout.groups import Place, group, place, rank_at, sizes, stride
from lib_dlhpc.layout.limits import is_shared_out, untrained
from lib_dlhpc.layout.parts import Part, parts
from lib_dlhpc.layout.spatial import rows_read
from lib_dlhpc.layout.stages import cut_points, live_names, stage_ends

__all__ = [
    "Part",
    "Place",
    "alike_group",
    "cut_points",
    "expert_group",
    "group",
    "is_shared_out",
    "live_names",
    "parts",
    "place",
    "rank_at",
    "rows_read",
    "sizes",
    "stage_ends",
    "stride",
    "untrained",
]
