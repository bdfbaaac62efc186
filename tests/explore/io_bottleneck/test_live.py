"""One loader on a folder and on a store: what is reported, what it needs, and that nothing is left behind."""

import tempfile
import threading
import time

import psutil
import pytest
from experiment_page import Now, button, click, controls, result_text
from patience import eventually

from lib_dlhpc.calibration.points import COLD, WARM
from lib_dlhpc.explore.blocks.runner import Cancelled
from lib_dlhpc.explore.io_bottleneck import live, loader
from lib_dlhpc.explore.io_bottleneck import words as io_bottleneck_words
from lib_dlhpc.explore.io_bottleneck.here import BATCH, FILES, make
from lib_dlhpc.explore.io_bottleneck.live import read_them, requests, run
from lib_dlhpc.explore.io_bottleneck.words import (
    WAYS,
    Read,
    Setting,
    experiment,
    outcome_words,
    rates,
    result_html,
)
from lib_dlhpc.launch.local import JobError
from lib_dlhpc.prediction.storage.io import reading
from lib_dlhpc.storage.mount import mounted
from lib_dlhpc.storage.pack import pack
from lib_dlhpc.storage.packed import open_store

TIER = {
    "tier": {
        "bandwidth": 4e9,
        "scope": "node",
        "name": "here",
        "servers": "one",
        "operation_latency": 5e-6,
        "read_latency": 5e-6,
        "reader_bandwidth": 4e9,
        "metadata_rate": 2e5,
        "read_rate": 4e5,
    },
    "error": 0.02,
    "system": "ext4",
}
READ = {
    "took": {"files": 0.05, "mounted": 0.5, "many": 0.04},
    "ready": {"files": 0.01, "mounted": 0.02, "many": 0.02},
    "same": True,
    "load": 0.5,
    "latency": 2e-4,
    "bandwidth": 2e9,
    "work": 4e-6,
    "files": 3.3e-5,
    "mounted": 3e-5,
    "many": 1.5e-5,
    "own": 2e-5,
}
OUTCOME = Read(TIER, READ)


# what is reported -----------------------------------------------------------------------------------


def test_a_click_reads_what_the_controls_say_and_reports_every_way():
    asked = []
    page = read_them(lambda setting, stop, tell: asked.append(setting) or OUTCOME, thread=Now)
    controls(page)["Ranks"].value = 4
    click(page, "Read")
    text = result_text(page)
    assert asked == [Setting(ranks=4)]
    for said in (
        "0.1 times its rate",
        "1.2 times its rate",
        "the same samples in the same order",
        "ext4",
        "Why they differ",
        "not predicted",
        *WAYS.values(),
    ):
        assert said in text
    assert not button(page, "Read").disabled and button(page, "Cancel").disabled


def test_other_samples_are_reported_and_so_is_what_was_dropped():
    other = OUTCOME._replace(read=READ | {"same": False})
    assert "NOT the same samples" in outcome_words(Setting(), other)
    assert "dropped from memory" in outcome_words(Setting(state=COLD), OUTCOME)


@pytest.mark.parametrize(
    ("failure", "said"),
    [(JobError("this machine is busy"), "this machine is busy"), (Cancelled(), "Cancelled.")],
)
def test_a_failure_is_shown_and_the_button_is_back(failure, said):
    def fails(setting, stop, tell):
        raise failure

    page = read_them(fails, thread=Now)
    click(page, "Read")
    assert said in result_text(page) and not button(page, "Read").disabled


def test_cancel_asks_the_reader_to_stop():
    stops = []
    page = read_them(lambda setting, stop, tell: stops.append(stop) or OUTCOME, thread=Now)
    click(page, "Read")
    assert not stops[0].is_set()
    button(page, "Cancel").disabled = False
    click(page, "Cancel")
    assert stops[0].is_set()


# what is predicted ----------------------------------------------------------------------------------


def test_requests_to_other_ranks_cost_the_store_and_batches_have_few():
    terms = {way: reading(experiment(Setting(), OUTCOME, way)).reader for way in WAYS}
    assert terms["files"]["remote reads"] == 0 and terms["files"]["metadata"] == pytest.approx(
        15e-6
    )
    assert terms["mounted"]["metadata"] == 0
    one = (2 * READ["latency"] + 16384 / READ["bandwidth"]) / 2
    assert terms["mounted"]["remote reads"] == pytest.approx(one)
    few = (2 * READ["latency"] / BATCH) + 16384 / READ["bandwidth"] / 2
    assert terms["many"]["remote reads"] == pytest.approx(few)


@pytest.mark.parametrize("setting", [Setting(copies=0), Setting(ranks=1)])
def test_where_every_rank_holds_everything_nobody_is_asked(setting):
    for way in WAYS:
        assert reading(experiment(setting, OUTCOME, way)).reader["remote reads"] == 0


def test_in_memory_one_rank_alone_is_predicted_as_it_was_measured():
    alone = Setting(ranks=1)
    for way in WAYS:
        assert sum(reading(experiment(alone, OUTCOME, way)).reader.values()) == pytest.approx(
            READ[way]
        )


def test_ranks_without_a_core_of_their_own_take_turns(monkeypatch):
    work = {}
    for cores in (1, 2, 4):
        monkeypatch.setattr(io_bottleneck_words, "cores", lambda cores=cores: cores)
        work[cores] = reading(experiment(Setting(), OUTCOME, "files")).reader["decoding"]
    assert work[1] == pytest.approx(2 * work[2]) and work[4] == work[2]


def test_simulation_and_prediction_agree_where_nobody_queues():
    for way in WAYS:
        predicted, simulated, _ = rates(Setting(ranks=1), OUTCOME, way)
        assert simulated == pytest.approx(predicted, rel=0.02)


def test_errors_and_what_is_not_predicted_are_shown():
    html = result_html(Setting(), OUTCOME)
    for way in WAYS:
        predicted, _, real = rates(Setting(), OUTCOME, way)
        assert f"{predicted / real - 1:+z.0%}" in html


def test_a_busy_machine_is_reported(monkeypatch):
    monkeypatch.setattr(io_bottleneck_words, "cores", lambda: 2)
    assert "wanted" not in result_html(Setting(), OUTCOME)
    busy = OUTCOME._replace(read=READ | {"load": 9.2})
    assert "9 processes shared the 2 cores" in result_html(Setting(), busy)


def test_one_question_a_batch():
    assert requests(1) == FILES // 4 and requests(64) == -(-(FILES // 2) // 64)


# for real ---------------------------------------------------------------------------------------------


def test_the_loader_sees_the_same_in_a_folder_and_in_a_store(tmp_path):
    make(tmp_path / "files", 60, 1000)
    pack(tmp_path / "files", tmp_path / "store", partitions=3)
    folder = loader.read(loader.order(loader.find(str(tmp_path / "files")), 5))
    with open_store(tmp_path / "store") as store, mounted(store, tmp_path / "there") as root:
        assert loader.read(loader.order(loader.find(root), 5)) == folder
        assert loader.read(loader.order(loader.find(root), 6)) != folder
    assert len(set((tmp_path / "files").rglob("*.bin"))) == 60


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where temporary folders are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def left_over(place):
    """Processes that were started with a folder of this place."""
    return [
        p
        for p in psutil.process_iter(["cmdline"])
        if str(place) in " ".join(p.info["cmdline"] or [])
    ]


def test_on_two_ranks_all_see_the_same_and_nothing_is_left(place):
    outcome = run(Setting(size=4 << 10), threading.Event(), lambda words: None)
    assert outcome.read["same"] and set(outcome.read["took"]) == set(WAYS)
    assert all(rate > 0 for way in WAYS for rate in rates(Setting(size=4 << 10), outcome, way))
    assert list(place.iterdir()) == [] and left_over(place) == []


@pytest.mark.parametrize(
    ("at", "begun"),
    [
        ("Writing", lambda place: any(place.rglob("*.bin"))),
        ("2 ranks", lambda place: len(left_over(place)) >= 1 + 2),  # mpiexec and its ranks
    ],
)
def test_cancelled_at_any_time_it_leaves_nothing(place, at, begun):
    stop = threading.Event()

    def cancel():
        eventually(lambda: begun(place), at)
        stop.set()

    def tell(words):
        if words.startswith(at):
            threading.Thread(target=cancel).start()

    begin = time.monotonic()
    with pytest.raises(Cancelled):
        run(Setting(size=4 << 10, state=WARM), stop, tell)
    assert time.monotonic() - begin < live.PATIENCE
    assert list(place.iterdir()) == [] and left_over(place) == []


def test_an_error_of_a_rank_is_reported(place, monkeypatch):
    monkeypatch.setattr(live, "MODULE", "lib_dlhpc.explore.no_such_module")
    with pytest.raises(JobError, match="No module named"):
        run(Setting(), threading.Event(), lambda words: None)
    assert list(place.iterdir()) == []


def test_a_rank_that_fails_ends_the_others_and_is_reported(place, monkeypatch):
    """What one rank does not find, the others must not wait for."""
    through = live._through

    def without_a_partition(words, folder, *given):
        for part in folder.glob("data.store/partition-00001"):
            part.unlink()
        through(words, folder, *given)

    monkeypatch.setattr(live, "_through", without_a_partition)
    begin = time.monotonic()
    with pytest.raises(JobError, match=r"StoreError.*partition-00001"):
        run(Setting(size=4 << 10), threading.Event(), lambda words: None)
    assert time.monotonic() - begin < live.PATIENCE
    assert list(place.iterdir()) == [] and left_over(place) == []
