"""A training step as data, and the longest path through it.

instructions.py        what a rank does: the instructions of a block
program.py             blocks, and the calls that execute them;  group.py: the groups that exchange
calls.py               the passes of a pipeline in an order in which each follows the pass whose message it needs
fold.py                a block as a few sums: work, and the messages within it
pass_contention.py     exchanges of a pass that use the same links at once
rounds.py              calls as numbers, in rounds that repeat
walk.py                when each stage finishes all calls, if repeated passes take equal times, with repeats skipped
ports.py               messages between stages that share links;  shared_walk.py: the same walk with them
gradient_contention.py gradients that meet messages between stages
path.py                when ranks start and end each pass, and what follows the passes
stage_path.py          the same with one number for each stage;  rank_path.py: with all ranks
step_end.py            what follows the passes, with its prices
depths.py              the passes of a pipeline by their depth, in stretches that repeat
lanes.py               the same path through many steps at once, as arrays
lane_walk.py           the passes of many pipelines of one shape, a lane each
intervals.py           the intervals of a path, to be drawn
totals.py              what a step computes and sends in all;  bottleneck.py: what limits its passes
in_flight.py           collectives and moves that a pass has posted and not yet waited for
overlapped_proof.py    that passes which overlap are those of their chunks
proof.py               that a program trains: every gradient summed once, nothing read before it has arrived

Passes of `parallel/` make programs; nothing here knows what a kind of parallelism is.
"""

from typing import TYPE_CHECKING

from lib_dlhpc.lazy import lazy_names

if TYPE_CHECKING:
    from lib_dlhpc.program.bottleneck import BoundShares
    from lib_dlhpc.program.calls import Call, calls
    from lib_dlhpc.program.group import Group
    from lib_dlhpc.program.instructions import (
        Barrier,
        Collective,
        Compute,
        Instruction,
        PairAllreduce,
        Transfer,
        Update,
        Wait,
        gathers,
        sums,
    )
    from lib_dlhpc.program.program import Block, Chunk, Priced, Prices, Program, Template
    from lib_dlhpc.program.proof import prove
    from lib_dlhpc.program.rank_path import RankedExchange, RankPath
    from lib_dlhpc.program.stage_path import StagePath
    from lib_dlhpc.program.totals import (
        StepWork,
        messages_of,
        mixes_of,
        pass_seconds,
        ranked_exchanges,
        work_of,
    )

__all__ = [
    "Barrier",
    "Block",
    "BoundShares",
    "Call",
    "Chunk",
    "Collective",
    "Compute",
    "Group",
    "Instruction",
    "PairAllreduce",
    "Priced",
    "Prices",
    "Program",
    "RankPath",
    "RankedExchange",
    "StagePath",
    "StepWork",
    "Template",
    "Transfer",
    "Update",
    "Wait",
    "calls",
    "gathers",
    "messages_of",
    "mixes_of",
    "pass_seconds",
    "prove",
    "ranked_exchanges",
    "sums",
    "work_of",
]

lazy_names(
    __name__,
    {
        "calls": ["Call", "calls"],
        "instructions": [
            "Collective",
            "Compute",
            "Instruction",
            "Barrier",
            "Transfer",
            "PairAllreduce",
            "Update",
            "Wait",
            "gathers",
            "sums",
        ],
        "bottleneck": ["BoundShares"],
        "rank_path": ["RankPath", "RankedExchange"],
        "stage_path": ["StagePath"],
        "group": ["Group"],
        "program": ["Block", "Chunk", "Priced", "Prices", "Program", "Template"],
        "proof": ["prove"],
        "totals": [
            "StepWork",
            "messages_of",
            "mixes_of",
            "pass_seconds",
            "ranked_exchanges",
            "work_of",
        ],
    },
)
