"""Which rank holds which part of a network, and the messages that this requires: communication is a layer.

For each rank of an experiment: the local form of its layers, with communication layers between them. prediction
prices that graph, simulation simulates it, training runs it.

groups.py          the groups of ranks
cuts.py            parts of a range
graph.py           the graph of one rank under construction
tensor.py          tensor parallelism: columns, rows, heads, positions
spatial.py         spatial parallelism: rows and their halos
context.py         context parallelism: tokens divided over ranks, attention apart
experts.py         expert parallelism: experts sharded over replicas
stages.py          where a pipeline cuts the network
part.py            Part: a stage on one rank
stage_parts.py     the parts of all stages, each made when it is asked for
parts.py           parts(experiment, rank): all of the above
identical_ranks.py which ranks of a pipeline have equal parts, but for names
limits.py          what can be predicted but not trained

Communication layers, beside those of the model:

    exchange   forward and backward: none, all_reduce, all_gather, slice or reduce_scatter, in `group`,
               along `axis` of a sample, cut at `cuts`
    halo       rows of other ranks: `owned` and `needed` are the rows that each rank has and reads; those beyond
               the edge are `fill`. A rank never receives rows that it owns
    receive    an output of the previous stage, under its name
    table      weights of an embedding that another stage holds too

Attributes of local layers: the `part` of each parameter that the rank has, as {name: (axis, ranges)},
the `elements` of the output, as (axis, ranges), the `whole` layer, and the groups beside data over which
its gradients are reduced (`sum`).
"""

from typing import TYPE_CHECKING

from lib_dlhpc.lazy import lazy_names

if TYPE_CHECKING:
    from lib_dlhpc.layout.context import (
        context_group,
        gathers_keys,
        in_step_replicas,
        key_elements,
        own_tokens,
        ring_blocks,
    )
    from lib_dlhpc.layout.experts import (
        alike_group,
        check_experts,
        expert_group,
        expert_nodes,
        mean_shards,
    )
    from lib_dlhpc.layout.groups import Place, folded, group, place, rank_at, shards, sizes, stride
    from lib_dlhpc.layout.identical_ranks import representative, represented
    from lib_dlhpc.layout.limits import is_partitioned, untrained
    from lib_dlhpc.layout.part import Part
    from lib_dlhpc.layout.parts import chain, home_layers, parts, stage_cut, stage_cuts
    from lib_dlhpc.layout.spatial import rows_read
    from lib_dlhpc.layout.stages import (
        cut_points,
        layer_work,
        live_names,
        stage_ends,
        stages_by_rule,
    )
    from lib_dlhpc.layout.tensor import too_few

__all__ = [
    "Part",
    "Place",
    "alike_group",
    "chain",
    "check_experts",
    "context_group",
    "cut_points",
    "expert_group",
    "expert_nodes",
    "folded",
    "gathers_keys",
    "group",
    "home_layers",
    "in_step_replicas",
    "is_partitioned",
    "key_elements",
    "layer_work",
    "live_names",
    "mean_shards",
    "own_tokens",
    "parts",
    "place",
    "rank_at",
    "representative",
    "represented",
    "ring_blocks",
    "rows_read",
    "shards",
    "sizes",
    "stage_cut",
    "stage_cuts",
    "stage_ends",
    "stages_by_rule",
    "stride",
    "too_few",
    "untrained",
]

lazy_names(
    __name__,
    {
        "identical_ranks": ["representative", "represented"],
        "context": [
            "context_group",
            "gathers_keys",
            "in_step_replicas",
            "key_elements",
            "own_tokens",
            "ring_blocks",
        ],
        "experts": ["alike_group", "check_experts", "expert_group", "expert_nodes", "mean_shards"],
        "groups": ["Place", "folded", "group", "place", "rank_at", "shards", "sizes", "stride"],
        "limits": ["is_partitioned", "untrained"],
        "part": ["Part"],
        "parts": ["chain", "home_layers", "parts", "stage_cut", "stage_cuts"],
        "spatial": ["rows_read"],
        "stages": ["cut_points", "layer_work", "live_names", "stage_ends", "stages_by_rule"],
        "tensor": ["too_few"],
    },
)
