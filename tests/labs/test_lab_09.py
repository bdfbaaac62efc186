"""Lab 9: the starter fails with a reason, the solution passes, and each mistake is named."""

import inspect
import os
import subprocess
import sys

import numpy as np
import pytest
from lab_answers import found, run_cell

from lib_dlhpc.errors import SpecError
from lib_dlhpc.labs.findings import as_text, passed
from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.labs.predict_your_cluster import real_cluster
from lib_dlhpc.labs.predict_your_cluster.hidden_cluster import (
    CAUSES,
    CONTENTION,
    EDGES,
    JITTER,
    NIC,
    ROUTES,
    SIZES,
    calibration,
    experiment_of,
    jobs_of,
    message_seconds,
    predicted_terms,
    product_seconds,
    simulated,
)
from lib_dlhpc.labs.predict_your_cluster.laws import (
    CAUSE,
    COVERS,
    MESSAGES,
    NARROW,
    PRODUCTS,
    SHOWS,
    STEP,
    TARGET,
    cause_finding,
    numbers,
    target_finding,
)
from lib_dlhpc.labs.predict_your_cluster.tables import check_layout

LAB = "09_predict_your_cluster"
SURPRISES = (NIC, JITTER, CONTENTION)
LEADS = {
    (NIC, "-"): "Which part of the link do they share",
    (NIC, "+"): "is latency shared as well",
    (JITTER, "-"): "Is it no later than the last of fewer ranks",
    (JITTER, "+"): "twice as late",
    (CONTENTION, "-"): "Does each additional rank slow",
    (CONTENTION, "+"): "if it is alone on its node",
}


@pytest.fixture(scope="module")
def names(own):
    """A learner for each of the causes."""
    found = {}
    for number in range(30):
        found.setdefault(own.own_of(f"learner {number}").why, f"learner {number}")
    assert {*found} == {*SURPRISES}
    return found


def changed(solved, function, *changes):
    """A function of the solution, text of it replaced, as from a cell."""
    source = inspect.getsource(getattr(solved, function))
    for old, new in changes:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return run_cell(source, dict(vars(solved)))[function]


def answers(solved, machine, why=None):
    """What a learner hands in: the solution, with the cause and the numbers of two runs."""
    fits = solved.fit_messages(calibration(machine)[0]) | solved.fit_products(
        calibration(machine)[1]
    )
    job = jobs_of(machine)[1]
    spread, slower = solved.read_off(simulated(machine, job, 4, 2), solved.terms(fits, job, 4))
    scope = {**vars(solved), "SPREAD": spread, "SLOWER": slower}
    why = why or machine.why
    repaired = run_cell(inspect.getsource(getattr(solved, why)), scope)[why]
    return {**vars(solved), "cause": lambda: why, "repaired": repaired}


@pytest.mark.parametrize("why", SURPRISES)
def test_the_solution_holds(own, solved, names, why):
    findings = own.findings(answers(solved, own.own_of(names[why])), names[why])
    assert passed(findings) and len(findings) == 7, as_text(findings)


def test_the_starter_fails_with_a_useful_message(own, started):
    scope = started("fit_messages", "terms", "band", "repaired", "cause")
    findings = own.findings(scope, "x")
    assert [each.right for each in findings] == [False] * 3 + [None] * 2 + [False, None]
    for law, words in {
        MESSAGES: "which a single line cannot describe",
        PRODUCTS: "some of the nine measurements",
        STEP: "does not reach the rate",
        COVERS: "as soon as your prediction holds",
        CAUSE: "With more nodes",
        TARGET: "as soon as your fits",
    }.items():
        assert words in found(findings, law).words, as_text(findings)


@pytest.mark.parametrize("function", ["fit_messages", "fit_products", "terms", "band"])
def test_each_mistake_is_named(own, solved, function):
    for mistake, (where, old, new, law, words) in solved.MISTAKES.items():
        if where == function:
            findings = judged(
                own, {**vars(solved), function: changed(solved, function, (old, new))}, function
            )
            finding = found(findings, law)
            assert finding.right is False and words in finding.words, (mistake, finding)


def test_a_mistake_is_named_where_its_value_equals_that_of_another(own, solved):
    terms = changed(solved, "terms", ("rounds = log2(ranks)", "rounds = 1"))
    machine = own.own_of("learner 225")  # whose jump is as long as a message of the small network
    words = own.terms_finding(terms, machine).words
    assert "After how many rounds" in words, words


@pytest.mark.parametrize("why", SURPRISES)
@pytest.mark.parametrize(("factor", "sign"), [(0.5, "-"), (2.0, "+")])
def test_a_repair_that_is_off_is_led_by_its_sign(own, solved, names, why, factor, sign):
    machine = own.own_of(names[why])
    given, term = answers(solved, machine), SHOWS[why]

    def scaled(*where):
        found = given["repaired"](*where)
        return {**found, term: factor * found[term]}

    words = target_finding({**given, "repaired": scaled}, machine).words
    assert f"{term} is off by {sign}" in words and LEADS[why, sign] in words, words


def test_ranks_that_wait_no_longer_for_the_latest_of_more_miss_the_target(own, solved, names):
    """On 8 ranks the share of 4 is off by less than 5% of a step."""
    machine = own.own_of(names[JITTER])
    given = answers(solved, machine)

    def constant(fit, job, ranks, nodes):
        four = given["repaired"](fit, job, 4, 2)
        found = given["repaired"](fit, job, ranks, nodes)
        return {**found, "waiting": four["waiting"] / four["compute"] * found["compute"]}

    finding = target_finding({**given, "repaired": constant}, machine)
    assert finding.right is False and LEADS[JITTER, "-"] in finding.words, finding


@pytest.mark.parametrize("why", SURPRISES)
def test_no_repair_is_led_to_before_the_cause_is_named(own, solved, names, why):
    machine = own.own_of(names[why])

    def plain(fit, job, ranks, nodes):
        return {**solved.terms(fit, job, ranks), "waiting": 0.0}

    given = {**answers(solved, machine), "repaired": plain}
    early = target_finding({**given, "cause": lambda: ROUTES}, machine).words
    assert f"{SHOWS[why]} is off by -" in early and "Find the cause first" in early
    assert LEADS[why, "-"] not in early
    assert LEADS[why, "-"] in target_finding(given, machine).words


def test_a_repair_of_a_term_that_no_run_showed_is_said_to_be_one(own, solved, names):
    machine = own.own_of(names[NIC])
    given = answers(solved, machine)

    def slowed(*where):
        found = given["repaired"](*where)
        return {**found, "waiting": found["compute"]}

    words = target_finding({**given, "repaired": slowed}, machine).words
    assert "does waiting differ from the prediction of `terms`" in words


def judged(own, given, function):
    """What holds for one of the functions, of the learner of that name."""
    machine = own.own_of("your name")
    if function.startswith("fit"):
        return own.fit_findings(given["fit_messages"], given["fit_products"], machine)
    if function == "terms":
        return [own.terms_finding(given["terms"], machine)]
    return own.band_findings(given["band"], given["terms"], machine)


def test_the_starters_band_and_repair_are_diagnosed(own, solved, starter, names):
    scope = dict(vars(solved))
    for each in ("band", "repaired"):
        run_cell(starter(LAB, f"def {each}("), scope)
    findings = own.findings({**scope, "cause": lambda: ROUTES}, names[NIC])
    assert "Does one width suit all machines" in found(findings, COVERS).words
    assert "has to come from the spread" in found(findings, NARROW).words
    assert "communication is off by -" in found(findings, TARGET).words


@pytest.mark.parametrize("why", SURPRISES)
def test_a_wrong_cause_is_reported_with_where_it_would_show(own, names, why):
    machine = own.own_of(names[why])
    for cause in CAUSES:
        finding = cause_finding(lambda cause=cause: cause, machine)
        assert finding.right is (cause == why)
    assert "legal: nic" in cause_finding(lambda: "nics", machine).words
    assert "stopped with ZeroDivisionError" in cause_finding(lambda: 1 / 0, machine).words
    way = cause_finding(lambda: ROUTES, machine).words
    assert ("4 ranks of 4 nodes" in way) is (why == NIC)


@pytest.mark.parametrize("why", SURPRISES)
def test_the_repair_of_another_cause_or_a_factor_over_all_misses_the_target(
    own, solved, names, why
):
    machine = own.own_of(names[why])
    for other in {*SURPRISES} - {why}:
        assert target_finding(answers(solved, machine, other), machine).right is False
    given, job = answers(solved, machine), jobs_of(machine)[1]

    def by_a_factor(fit, which, ranks, nodes):
        seen = sum(simulated(machine, job, ranks, nodes).values())
        factor = seen / sum(solved.terms(fit, job, ranks).values())
        terms = {**solved.terms(fit, which, ranks), "waiting": 0.0}
        return {name: factor * seconds for name, seconds in terms.items()}

    finding = target_finding({**given, "repaired": by_a_factor}, machine)
    assert finding.right is False and "is off by" in finding.words


@pytest.mark.parametrize("number", range(40))
def test_every_learner_can_fit_and_is_surprised(own, solved, number):
    machine = own.own_of(f"learner {number}")
    messages, products = calibration(machine)
    sizes, work = np.array(SIZES, float), 2.0 * np.array(EDGES, float) ** 3
    off = message_seconds(solved.fit_messages(messages), sizes) / message_seconds(
        machine.fit, sizes
    )
    assert np.abs(off - 1).max() < 0.045
    off = product_seconds(solved.fit_products(products), work) / product_seconds(machine.fit, work)
    assert np.abs(off - 1).max() < 0.045
    small, large = (job.gradient for job in jobs_of(machine)[:2])
    assert machine.step < large and small < 2 * machine.step


def test_two_ranks_show_nothing_of_what_more_bring(own, names):
    for why in (NIC, CONTENTION):
        machine = own.own_of(names[why])
        for job in jobs_of(machine):
            with_it, without = (
                experiment_of(machine, job, 2, 2, surprise=each) for each in (True, False)
            )
            assert with_it.machine.nics == without.machine.nics == 1
            assert with_it.machine.device == without.machine.device
            shown, bare = (
                experiment_of(machine, job, 8, 2, surprise=each) for each in (True, False)
            )
            assert (shown.machine.nics, shown.machine.device) != (
                bare.machine.nics,
                bare.machine.device,
            )


def test_what_is_no_number_is_reported_and_arguments_are_copies():
    def spoil(points):
        points.clear()
        return {"rate": "fast"}

    points = [1, 2]
    with pytest.raises(LabError, match='spoil returns a dict of numbers: "rate"'):
        numbers(spoil, ("rate",), points)
    assert points == [1, 2]
    with pytest.raises(LabError, match='"rate" is nan'):
        numbers(lambda: {"rate": float("nan")}, ("rate",))


def test_a_run_is_compared_with_its_prediction_and_not_before(own, solved, names):
    name, order = names[NIC], ("fit_messages", "fit_products", "terms", "band", "repaired")
    machine = own.own_of(name)
    functions = [answers(solved, machine)[each] for each in order]
    shown = own.submit(name, 8, 2, *functions).value
    for job in jobs_of(machine)[:2]:
        assert f'"{job.name}" on 8 ranks of 2 nodes' in shown
    assert "does not hold what was measured" in shown and shown.count(">repaired off<") == 2
    functions[2] = changed(solved, "terms", (' + fit["half"]', ""))
    assert "nothing runs before it is predicted" in own.submit(name, 8, 2, *functions).value


def test_an_unknown_layout_is_reported_with_the_legal_ones():
    for ranks, nodes, words in (
        (3, 2, "legal: 2, 4, 8"),
        (4, 8, "legal for 4 ranks: 2, 4"),
        (8, 1, "2, 4, 8"),
    ):
        with pytest.raises(SpecError, match=words):
            check_layout(ranks, nodes)


@pytest.mark.parametrize(
    ("why", "term"), [(NIC, "communication"), (JITTER, "waiting"), (CONTENTION, "compute")]
)
def test_each_cause_shows_in_a_term_of_its_own(own, names, why, term):
    assert own.most_off(names[why]) == term


def test_what_the_notebook_shows_is_shown(own, solved, names, monkeypatch, tmp_path):
    name = names[NIC]
    given = answers(solved, own.own_of(name))
    shown = own.points(name).value
    assert shown.count("<tr>") == len(SIZES) + len(EDGES) + 2 and "slowest" in shown
    assert "a gradient of" in own.jobs(name).value
    assert 1 < own.times_as_fast(name) < 4
    fits = given["fit_messages"], given["fit_products"]
    assert "All 2 hold" in own.check_fits(*fits, name).value
    assert "All 1 hold" in own.check_terms(given["terms"], name).value
    assert "All 2 hold" in own.check_band(given["band"], given["terms"], name).value
    both = given["cause"], given["repaired"]
    assert "All 2 hold" in own.check_repair(*both, *fits, given["terms"], name).value
    monkeypatch.setattr(own, "HERE", tmp_path)
    handed = own.hand_in(name, *(given[each] for each in own.NAMES)).value
    assert "All 7 hold" in handed and (tmp_path / "step.py").exists()
    for nothing in (own.measured(""), own.run("", None, 4, *fits, given["terms"])):
        assert "choose where" in nothing.value


def test_in_a_terminal_the_starter_fails_with_a_message(own, starter, tmp_path):
    cells = ("fit_messages", "terms", "band", "repaired", "cause")
    text = "\n\n".join(starter(LAB, f"def {each}(") for each in cells)
    (tmp_path / "step.py").write_text(text)
    run = run_checks(own, str(tmp_path / "step.py"), "x")
    assert run.returncode == 1 and "0 of 7 hold" in run.stdout


def run_checks(own, *words):
    return subprocess.run(
        [sys.executable, str(own.HERE / "checks.py"), *words],
        capture_output=True,
        text=True,
        timeout=180,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


@pytest.fixture
def there(own, own_state, ranks_can_start, monkeypatch, tmp_path):
    """The lab's folder for a machine that is there, empty."""
    monkeypatch.setattr(own, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(real_cluster, "SECONDS", 0.5)
    monkeypatch.setattr(real_cluster, "PATIENCE", 180.0)
    monkeypatch.setattr(real_cluster, "EPOCHS", 5)
    return own


def test_the_same_on_this_machine(there, solved):
    three = solved.fit_messages, solved.fit_products, solved.terms
    shown = there.measured("local").value
    assert shown.count(">message<") == 1 and "MFLOP" in shown and shown.count("<tr>") > 20
    first, run = there.run("local", None, 2, *three).children
    assert "Predicted by your terms on 2 ranks: compute" in first.value
    assert run.wait().step["measured"] > 0
    again, found = there.run("local", None, 2, *three).children
    assert "Measured: compute" in again.value
    assert found.job.ticket.token == run.job.ticket.token
    found.wait()
    assert "RANKS = 3: legal" in there.run("local", None, 3, *three).value


def test_what_cannot_be_measured_is_reported(there, monkeypatch, tmp_path):
    assert "no-site" in there.measured("slurm", "no-site.toml").value
    (tmp_path / "measure.py").write_text("raise OSError('no clock here')")
    monkeypatch.setattr(there, "HERE", tmp_path)
    shown = there.measured("local").value
    assert "no clock here" in shown and "Remove measured-local" in shown


def test_the_numbers_of_the_notes(own, repository):
    text = (repository / "instructor_notes" / f"lab_{LAB}.md").read_text(encoding="utf-8")
    alone, without = {"small": [], "large": []}, {"small": [], "large": []}
    for number in range(30):
        machine = own.own_of(f"learner {number}")
        for job in jobs_of(machine)[:2]:
            step = sum(predicted_terms(machine, job, 8).values())
            rate = sum(job.products) / 8 / machine.rate
            alone[job.name].append(100 - 100 * rate / step)
            without[job.name].append(100 - 100 * (rate + 3 * job.gradient * machine.beta) / step)
    for shares in (*alone.values(), *without.values()):
        assert f"{min(shares):.0f} to {max(shares):.0f}%" in text


def test_the_notes_count_the_mistakes(solved, repository):
    text = (repository / "instructor_notes" / f"lab_{LAB}.md").read_text(encoding="utf-8")
    assert f"{len(solved.MISTAKES)} mistakes by name" in text
