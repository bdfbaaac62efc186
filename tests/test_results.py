"""Laws of the results: a short repr, an accessible table, tidy columns, a chart; terms add up to the step."""

import subprocess
import sys
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
from planted import Planted

from lib_dlhpc import Experiment, SpecError, predict, simulate, sweep, validate
from lib_dlhpc.calibration.machine import fit_machine
from lib_dlhpc.comparison.comparison import beside, estimated
from lib_dlhpc.comparison.placed import placed
from lib_dlhpc.comparison.steady import steps_of
from lib_dlhpc.comparison.sweep import Row, Sweep
from lib_dlhpc.prediction import what_if
from lib_dlhpc.prediction.validation.replays import replay
from lib_dlhpc.results import Result, frame, percent, shown
from lib_dlhpc.serving import predict_service, read_service, simulate_service
from lib_dlhpc.spec import catalog
from lib_dlhpc.timeline import breakdown

GOYAL = replay("goyal-2017").experiment
SMALL = Experiment(model="mlp-digits", machine="laptop", strategy={"devices_per_node": 1})
GPT = Experiment(
    model="gpt2-1.5b",
    machine="selene",
    strategy={"nodes": 2, "tensor": 4, "pipeline": 2, "microbatches": 4, "batch": 8},
)
SERVICE = read_service(
    {"model": "llama3-8b", "machine": "h100-pod", "requests": {"count": 20, "answer": 8}}
)
AXES = {"strategy.nodes": [1, 2, 8], "strategy.allreduce": ["ring", "rabenseifner"]}


def compared():
    """A comparison whose run is a simulated one, with 90% bands of nothing."""
    expected = estimated(placed(SMALL))
    timeline = simulate(expected.placed.experiment, steps=12)
    slow = replace(timeline, start=1.1 * timeline.start, stop=1.1 * timeline.stop)
    return beside(expected, [steps_of(slow)])


RESULTS = {
    "predict": lambda: predict(GOYAL),
    "predict split": lambda: predict(GPT),
    "predict arrays": lambda: predict(GOYAL.set({"strategy.nodes": np.array([[1, 2], [4, 8]])})),
    "predict split arrays": lambda: predict(GPT.set({"strategy.batch": np.array([8, 16])})),
    "predict no memory": lambda: predict(GOYAL.set({"strategy.batch": 100_000})),
    "sweep": lambda: sweep(GOYAL, AXES),
    "large sweep": lambda: sweep(
        GOYAL, {"strategy.nodes": range(1, 45), "strategy.batch": [8, 16]}
    ),
    "simulate": lambda: simulate(GOYAL, steps=2),
    "mean step": lambda: breakdown(simulate(GOYAL, steps=2)),
    "validate": lambda: validate(["goyal17"]),
    "validate nothing": lambda: validate(["goyal17"], only=["no such row"]),
    "compare": compared,
    "compare sweep": lambda: Sweep(
        {"strategy.batch": [32, 0]},
        (Row({"strategy.batch": 32}, compared()), Row({"strategy.batch": 0}, None, "cannot run")),
    ),
    "predict service": lambda: predict_service(SERVICE),
    "simulate service": lambda: simulate_service(SERVICE),
    "calibrate": lambda: fit_machine(Planted().raw()),
}


@pytest.fixture(scope="module", autouse=True)
def _no_calibration_of_the_users(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@cache
def made(name):
    return RESULTS[name]()


@pytest.fixture(params=RESULTS)
def result(request):
    return made(request.param)


def test_a_repr_is_short_and_has_units(result):
    text = repr(result)
    assert text.startswith(f"{type(result).__name__}: ")
    lines = text.splitlines()
    assert len(lines) <= 10 and max(map(len, lines)) <= 200
    assert not any(word in text for word in ("array(", "np.float64", "nan", "inf "))


def test_a_table_has_a_caption_and_a_scope_at_each_heading(result):
    table = ElementTree.fromstring(result._repr_html_())
    assert table.tag == "table" and "".join(table.find("caption").itertext())
    headings = table.findall(".//th")
    assert {each.get("scope") for each in headings} <= {"col", "row"}
    width = len(table.findall("thead/tr/th"))
    for row in table.findall("tbody/tr"):
        assert len(row) == width or row.find("td").get("colspan") == str(width)
    assert "color" not in result._repr_html_()  # the page's own, light or dark
    assert len(result._repr_html_()) < 20_000


def test_columns_are_tidy_plain_values(result):
    columns = result.to_columns()
    assert len({len(values) for values in columns.values()}) == 1
    for name, values in columns.items():
        assert len({type(value) for value in values}) <= 1, name
        assert {type(value) for value in values} <= {str, int, float, bool}, name


def test_a_chart_is_valid_and_names_its_numbers(result):
    chart = result.plot().to_dict()  # Altair raises where a chart is not
    assert chart["title"]
    layers = chart.get("layer", [chart])
    assert all("tooltip" in layer["encoding"] for layer in layers)


@pytest.mark.parametrize(
    "name",
    [name for name in RESULTS if ("predict" in name or "sweep" in name) and "service" not in name],
)
def test_seconds_add_up_to_the_step(name):
    result, columns = made(name), made(name).to_columns()
    if name == "compare sweep":
        step = np.array([*result.rows[0].comparison.step.values()])
        ways = list(result.rows[0].comparison.step)
        found = [
            sum(s for way, s in zip(columns["way"], columns["seconds"], strict=True) if way == one)
            for one in ways
        ]
    else:
        step = np.ravel(result.step_time)
        found = np.reshape(columns["seconds"], (step.size, -1)).sum(axis=1)
    assert found == pytest.approx(step, rel=1e-12)


def test_seconds_of_each_rank_add_up_to_the_mean_step():
    of = made("mean step")
    columns = of.to_columns()
    seconds = np.bincount(columns["rank"], weights=columns["seconds"])
    assert seconds == pytest.approx(of.step_time)


@pytest.mark.parametrize("name", catalog.names("replays"))
def test_terms_of_one_run_are_floats(name):
    prediction = predict(replay(name).experiment)
    assert all(type(seconds) is float for seconds in prediction.terms.values())
    assert sum(prediction.terms.values()) == pytest.approx(float(prediction.step_time), rel=1e-12)
    assert len(repr(prediction).splitlines()) <= 4


@pytest.mark.parametrize("name", ["predict arrays", "predict split arrays"])
def test_terms_of_many_runs_are_arrays_of_one_shape(name):
    of = made(name)
    assert {np.shape(seconds) for seconds in of.terms.values()} == {np.shape(of.step_time)}
    assert all(isinstance(seconds, np.ndarray) for seconds in of.terms.values())


def test_each_configuration_of_a_frame_is_the_prediction_of_its_fields():
    columns = made("sweep").to_columns()
    rows = zip(*(columns[name] for name in (*AXES, "term", "seconds")), strict=True)
    for nodes, allreduce, term, seconds in rows:
        one = predict(what_if(GOYAL, {"strategy.nodes": nodes, "strategy.allreduce": allreduce}))
        assert seconds == pytest.approx(one.terms[term])


@pytest.mark.parametrize("installed", [["pandas", "polars"], ["polars"]])
def test_a_frame_is_of_the_library_that_is_installed(monkeypatch, installed):
    for library in ("pandas", "polars"):
        fake = SimpleNamespace(DataFrame=lambda columns, library=library: (library, columns))
        monkeypatch.setitem(sys.modules, library, fake if library in installed else None)
    result = made("predict")
    assert result.to_frame() == (installed[0], result.to_columns())


def test_without_a_library_the_error_says_what_to_install(monkeypatch):
    for library in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ModuleNotFoundError, match="pip install pandas") as error:
        frame({"seconds": [1.0]})
    assert len(str(error.value).splitlines()) == 1


def test_an_unknown_quantity_names_the_legal_ones():
    with pytest.raises(SpecError, match="expected one of step_time, throughput, memory_total"):
        made("sweep").plot("speed")


def test_numbers_and_their_ranges_have_units():
    assert shown(0.254, "s") == shown(np.array([0.254]), "s") == "254 ms"
    assert shown(np.array([[1.0, 2.0]]), "B") == "1 B to 2 B"
    assert percent(0.5) == "50.0%" and percent([0.1, 0.2]) == "10.0% to 20.0%"


def test_a_result_without_columns_or_chart_is_refused():
    class Incomplete(Result):
        def summary(self):
            return made("predict").summary()

    with pytest.raises(TypeError, match=r"abstract methods? '?plot'?, '?to_columns"):
        Incomplete()


def test_text_of_others_stays_text():
    class Strange(Result):
        to_columns = plot = None

        def summary(self):
            return made("predict").summary()._replace(title="<script>&", rows=[("<b>", "&")])

    table = ElementTree.fromstring(Strange()._repr_html_())
    assert table.find("caption/strong").text == "<script>&"
    assert table.find("tbody/tr/th").text == "<b>"


def test_nothing_is_drawn_until_a_chart_is_asked_for():
    code = (
        "import sys\nfrom lib_dlhpc import predict\nfrom lib_dlhpc.prediction.validation.replays import replay\n"
        "prediction = predict(replay('goyal-2017').experiment)\n"
        "repr(prediction), prediction._repr_html_(), prediction.to_columns()\n"
        "assert not {'altair', 'pandas', 'polars'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
