"""A schedule in space and time: ranks down, rounds across, a line for each message."""

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.allreduce.charts import name_of
from lib_dlhpc.explore.blocks.charts import Data, State, columns
from lib_dlhpc.schedules import Round, Schedule, checked

MOST_RANKS, MOST_ELEMENTS, MOST_ROUNDS = 16, 32, 64  # what can still be seen


def visible(plan: Schedule) -> list[Round]:
    """Return the rounds of a schedule. Raises SpecError if it is illegal or too large for a picture."""
    rounds = checked(plan)
    if plan.ranks > MOST_RANKS or plan.elements > MOST_ELEMENTS or len(rounds) > MOST_ROUNDS:
        raise SpecError(
            f"{plan.name}: a picture shows at most {MOST_RANKS} ranks, {MOST_ELEMENTS} elements and {MOST_ROUNDS}"
            f" rounds; here: {plan.ranks}, {plan.elements}, {len(rounds)}."
        )
    return rounds


def messages_chart(plan: Schedule, now: int = 0) -> State:
    """Return the messages as lines from (round, source) to (round + 1, target).

    now: the round to show bright, from 1; 0 shows none. Raises SpecError for what cannot be drawn.
    """
    rounds = visible(plan)
    count, ranks = len(rounds), range(plan.ranks)
    arrows = [
        {"from": k - 1, "to": k, "source": s, "target": t, "kind": kind, "now": now in (0, k)}
        | {"share": c / max(plan.elements, 1)}
        | {"words": f"round {k}: {s} to {t}, {kind}, {c} elements from {o} on"}
        for k, part in enumerate(rounds, start=1)
        for s, t, o, c, reduce in zip(*(array.tolist() for array in part.arrays), strict=True)
        for kind in ["reduce" if reduce else "copy"]
    ]
    reduces = sum(arrow["kind"] == "reduce" for arrow in arrows)
    data: Data = {
        "arrows": columns(arrows),
        "points": columns({"round": k, "rank": r} for k in range(count + 1) for r in ranks),
        "stage": {"start": [now - 1] if now else [], "stop": [now] if now else []},
    }
    return data, (
        f"{name_of(plan.name)} on {plan.ranks} ranks: {count} rounds, {reduces} messages that are combined (solid,"
        f" filled disc), {len(arrows) - reduces} that are copied (dashed, open square)."
    )
