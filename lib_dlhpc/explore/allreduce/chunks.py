"""What a schedule does to the blocks of every rank's buffer: followed round by round, and animated."""

from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets

from lib_dlhpc.explore.allreduce.messages import messages_chart, visible
from lib_dlhpc.explore.blocks.figure import Figure
from lib_dlhpc.schedules import Round, Schedule

STATIC = Path(__file__).parent / "static"


class Chunks(anywidget.AnyWidget):
    """Who holds which contributions, step by step: play, step or drag; chunks move between ranks."""

    _esm = STATIC / "chunks.js"
    _css = STATIC / "chunks.css"

    ranks = traitlets.Int(1).tag(sync=True)
    edges: Any = traitlets.List().tag(sync=True)  # where blocks begin, and the end
    # [round][rank][block], bit r set: the contribution of rank r is in it; negative: one more than once
    held: Any = traitlets.List().tag(sync=True)
    # [round][message]: [source, target, first block, last + 1, reduce]
    moves: Any = traitlets.List().tag(sync=True)
    words: Any = traitlets.List().tag(sync=True)  # what happened, a round
    round = traitlets.Int(0).tag(sync=True)
    serial = traitlets.Int(0).tag(sync=True)

    def show(self, plan: Schedule) -> None:
        """Show a schedule, right or wrong, from its start. Raises SpecError for what cannot be drawn."""
        self.plan = plan
        with self.hold_sync():
            self.edges, self.held, self.moves, self.words = _followed(plan)
            self.ranks, self.round = plan.ranks, 0
            self.serial += 1

    def lead(self, figure: Figure) -> None:
        """Let a figure of "messages" show the round that is shown here."""
        self.observe(lambda _: figure.update(*messages_chart(self.plan, self.round)), "round")


def _followed(plan: Schedule) -> tuple[list[int], list[Any], list[Any], list[str]]:
    """Return edges, held, moves and words of a schedule."""
    rounds = visible(plan)
    cut = [array for part in rounds for array in (part.offset, part.offset + part.count)]
    edges = np.unique(np.concatenate([np.array([0, plan.elements]), *cut]))
    # [rank, block, who]: how often the contribution of `who` is in it
    held = np.repeat(np.eye(plan.ranks, dtype=np.int64)[:, None], len(edges) - 1, axis=1)
    states, moves, words = [_coded(held)], [], ["Every rank holds its own contribution."]
    for number, part in enumerate(rounds, start=1):
        first, last = np.searchsorted(edges, [part.offset, part.offset + part.count])
        arrays = (part.source, part.target, first, last, part.reduce)
        moves.append([list(move) for move in zip(*(a.tolist() for a in arrays), strict=True)])
        before, held = held, held.copy()
        for source, target, start, stop, reduce in moves[-1]:
            sent = before[source, start:stop]
            held[target, start:stop] = held[target, start:stop] + sent if reduce else sent
        held = np.minimum(held, 100)
        states.append(_coded(held))
        words.append(f"Round {number}: {_round_words(part, held)}")
    return edges.tolist(), states, moves, words


def _coded(held: np.ndarray) -> list[list[int]]:
    mask = ((held > 0) * 2 ** np.arange(held.shape[2])).sum(2)
    return np.where((held > 1).any(2), -mask, mask).tolist()


def _round_words(part: Round, held: np.ndarray) -> str:
    reduces, repeated = int(part.reduce.sum()), int((held > 1).any(2).sum())
    kinds = {"reduce": reduces, "copy": len(part) - reduces}
    said = " and ".join(f"{count} {kind}" for kind, count in kinds.items() if count) or "no"
    complete, blocks = int((held == 1).all(2).sum()), held.shape[0] * held.shape[1]
    twice = f" {repeated} hold something twice." if repeated else ""
    return f"{said} message{'s' * (len(part) != 1)}; {complete} of {blocks} blocks are complete.{twice}"
