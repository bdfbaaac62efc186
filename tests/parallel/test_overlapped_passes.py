"""DualPipe's turns of two passes: what each exchanges for experts hides behind what the other computes, and no more."""

from dataclasses import replace

import pytest
from split_runs import GPT, MOE, split

from lib_dlhpc import parallel
from lib_dlhpc.costs.overlapped_prices import LEFT
from lib_dlhpc.parallel import pipeline, step
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.price import price
from lib_dlhpc.program import Collective, Compute, StagePath, Wait, messages_of, prove
from lib_dlhpc.program.calls import OVERLAPPED, calls
from lib_dlhpc.program.fold import Run
from lib_dlhpc.schedules.checks import ProofError
from lib_dlhpc.simulation import simulate
from lib_dlhpc.timeline import breakdown

WAYS = {"pipeline": 4, "microbatches": 16, "schedule": "dualpipe", "data": 4, "experts": 2}
# From exchanges that are short beside the other pass to those that are as long as all of a step's arithmetic.
LINKS = [{"latency": 1e-6, "bandwidth": speed} for speed in (1e8, 1e9, 1e10, 1e12)]
MORE = [{}, {"recompute": "full"}, {"tensor": 2}, {"zero": 3}, {"zero": 2}, {"context": 2}]


def run_of(links=None, model=MOE, **more):
    return split(model, links, batch=16, **WAYS | more)


def overlapped(run):
    """Return each overlapped block of a step and in how many turns of the mean rank it is."""
    program = parallel.program(run)
    for place, stage in enumerate(program.stages):
        for number, chunk in enumerate(stage):
            yield chunk.overlapped, program.overlaps(place, number)[0] / len(program.stages)


def apart(monkeypatch, run):
    """Return the program of a run whose turns are one pass after the other."""
    with monkeypatch.context() as patch:
        for module in (step, pipeline):
            patch.setattr(module, "overlaps_passes", lambda experiment: False)
        return parallel.program(run)


def exposed(program):
    """Return for how long the mean rank waits for exchanges of experts."""
    path = StagePath(program, 1.0)
    path.run()
    within = messages_of(program)[1].get("experts", 0.0)
    return within + float(path.late["experts"]) / len(program.stages)


def met(spans, others):
    """Return for how long of each span one of the others lasts."""
    return [sum(max(0.0, min(b, d) - max(a, c)) for c, d in others) for a, b in spans]


def hidden(block):
    """Return the seconds of exchanges of experts while the rank computes."""
    now, free, ends, worked, sent = 0.0, {}, {}, [], []
    for each in block.folded:
        if isinstance(each, Run):
            until = now + each.head + each.middle + each.tail
            worked.append((now, until))
            now = until + each.messages
        elif isinstance(each, Wait):
            now = max(now, ends[each.key])
        else:
            stream = each.what.stream
            start = max(now, free.get(stream, 0.0))
            ends[each.what.key] = free[stream] = start + each.seconds
            if stream == "experts":
                sent.append((start, start + each.seconds))
    return sum(met(sent, worked))


@pytest.mark.parametrize("more", [{}, {"recompute": "full"}, {"tensor": 2}], ids=str)
@pytest.mark.parametrize("links", LINKS, ids=lambda links: f"{links['bandwidth']:g} B/s")
def test_hidden_and_exposed_are_the_exchanges_of_the_step_without_overlap(
    links, more, monkeypatch, without_meeting
):
    """Exchanges of tensor ranks, on the same links, slow those of experts down."""
    run = run_of(links, **more)
    total = exposed(apart(monkeypatch, run))
    assert total == pytest.approx(float(predict(run).messages["experts"].total), rel=1e-9)
    behind = sum(times * hidden(block) for block, times in overlapped(run))
    assert behind > 0
    assert exposed(parallel.program(run)) + behind == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("more", MORE, ids=str)
def test_no_exchange_hides_behind_more_than_the_other_pass_computes_meanwhile(more):
    """But for weight gradients of its own pass, which depend on no exchange."""
    for links in LINKS[:2]:
        for block, _ in overlapped(run_of(links, **more)):
            seconds, posted, found = block.prices[0].seconds, {}, 0
            for each in block.variants[0].instructions:
                if isinstance(each, Collective) and each.stream == "experts":
                    posted[each.key], found = each.key.startswith("forward"), found + 1
                elif isinstance(each, Wait) and each.stream == "experts":
                    del posted[each.key]
                elif isinstance(each, Compute) and each.phase != "weight_grad":
                    assert (each.layer < block.ahead) not in posted.values()
            assert found and not posted
            work = sum(
                seconds[e.phase][e.layer]
                for e in block.variants[0].instructions
                if isinstance(e, Compute)
            )
            assert hidden(block) <= work * (1 + 1e-12)


def test_slow_exchanges_are_exposed_but_for_what_is_computed_and_fast_ones_but_the_last_are_hidden():
    """A stage has one block, so a turn has four exchanges, and after the last of them there is no other pass left."""
    slow = {"latency": 1e-6, "bandwidth": 1e5}
    for links, low, high in ((slow, 0.95, 1.0), (LINKS[3], 0.0, 0.26)):
        for block, _ in overlapped(run_of(links)):
            sent = sum(one.seconds for one in block.messages if one.kind == "experts")
            seconds, late, _ = block.alone(1.0)
            assert low * sent <= late.get("experts", 0.0) + 1e-15 <= high * sent, links
            assert seconds - late.get("experts", 0.0) == pytest.approx(
                block.work[0].sum(), rel=1e-9
            )


@pytest.mark.parametrize("more", [{}, {"recompute": "full", "zero": 1}], ids=str)
@pytest.mark.parametrize(("node", "low"), [(1, 1e-4), (4, 0.1)])
def test_prediction_rounds_and_events_agree(more, node, low):
    run = run_of(devices_per_node=node, **more | {"microbatches": 8})
    prove(parallel.steps(run))
    predicted = predict(run)
    rounds, events = (breakdown(simulate(run, each)) for each in ("rounds", "events"))
    assert rounds.step_time == pytest.approx(float(predicted.step_time), rel=1e-9)
    assert events.step_time == pytest.approx(rounds.step_time, rel=low)
    for name, seconds in predicted.terms.items():
        assert rounds.terms[name] == pytest.approx(seconds, abs=1e-9 * rounds.step_time), name
        if name in ("forward", "backward"):
            assert events.terms[name] == pytest.approx(seconds, rel=1e-9), name


@pytest.mark.parametrize(
    ("model", "more"), [(GPT, {"experts": 1}), (MOE, {"experts": 1}), (MOE, {"overlap": False})]
)
def test_without_exchanges_in_flight_passes_follow_one_another(model, more, monkeypatch):
    run = run_of(model=model, **more)
    program = parallel.program(run)
    assert program.schedule.name == "dualpipe"
    assert not any(chunk.overlapped for stage in program.stages for chunk in stage)
    assert price(program) == price(apart(monkeypatch, run))


def test_only_turns_of_both_directions_overlap():
    """While the pipeline fills and drains a rank has passes of one kind, whose exchanges are exposed."""
    program = parallel.program(run_of())
    for place in range(4):
        own = [call for call in calls(program.schedule) if call.place == place and call.computes]
        first, last = (
            [at for at, call in enumerate(own) if call.phase == OVERLAPPED][end] for end in (0, -1)
        )
        assert {call.phase for call in own[:first]} <= {"forward", "backward", "weights"}
        assert all(call.phase != "forward" for call in own[last + 1 :])
        for call in own[first : last + 1]:
            ahead, back = call.halves if len(call.halves) > 1 else (None, None)
            assert ahead is None or {ahead.chunk, back.chunk} == {0, 1}


def test_arithmetic_has_the_multiprocessors_that_serve_no_messages():
    """A roofline whose peak is 112/132 of the device's: between 1 and 132/112 times as long, layer by layer."""
    assert pytest.approx(112 / 132) == LEFT
    slower = set()
    for stage in parallel.program(run_of()).stages:
        for number, chunk in enumerate(stage):
            alone, other = chunk.forward.prices[0], stage[1 - number].forward.prices[0]
            both = chunk.overlapped.prices[0]
            assert len(both.forward) == len(alone.forward) + len(other.forward)
            for slow, quick in zip(both.forward, [*alone.forward, *other.forward], strict=True):
                assert quick <= slow <= quick / LEFT * (1 + 1e-12)
                slower.add(slow > quick)
    assert slower == {True, False}


def changed(program, change):
    """Return a step whose overlapped passes are changed."""

    def of(chunk):
        block = chunk.overlapped
        template = replace(
            block.variants[0], instructions=tuple(change(block.variants[0].instructions))
        )
        return replace(chunk, overlapped=replace(block, variants=(template,)))

    return replace(program, stages=tuple(tuple(map(of, stage)) for stage in program.stages))


def without(kind, number=0):
    def change(instructions):
        at = [i for i, e in enumerate(instructions) if isinstance(e, kind)][number]
        return [*instructions[:at], *instructions[at + 1 :]]

    return change


def late_wait(instructions):
    wait = next(e for e in instructions if isinstance(e, Wait))
    return [*(e for e in instructions if e is not wait), wait]


def turned(instructions):
    """Two computations of the forward pass in the other order."""
    one, two = [
        i for i, e in enumerate(instructions) if isinstance(e, Compute) and not e.layer > 1
    ][:2]
    found = [*instructions]
    found[one], found[two] = found[two], found[one]
    return found


def early_weights(instructions):
    weight = next(e for e in instructions if isinstance(e, Compute) and e.phase == "weight_grad")
    return [weight, *(e for e in instructions if e is not weight)]


MUTANTS = {
    "a wait left out": (without(Wait), "ends before experts does"),
    "a wait too late": (late_wait, "before (forward|backward) has arrived"),
    "an exchange left out": (without(Collective), "which was not posted"),
    "a layer left out": (without(Compute), "computes other layers than its passes"),
    "layers in another order": (turned, "or in another order"),
    "weight gradients too early": (early_weights, "has no gradient of its output yet"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_proof_refuses(name):
    change, says = MUTANTS[name]
    program = parallel.program(run_of())
    prove([program])
    with pytest.raises(ProofError, match=says):
        prove([changed(program, change)])


def test_an_exchange_that_is_lost_with_its_wait_is_found():
    def change(instructions):
        key = next(e.key for e in instructions if isinstance(e, Wait))
        return [e for e in instructions if getattr(e, "key", "") != key]

    with pytest.raises(ProofError, match="exchanges more or less than its passes"):
        prove([changed(parallel.program(run_of()), change)])
