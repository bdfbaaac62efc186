"""A class over HTTP: who may join, send, see and delete; and nothing is lost while the server is away."""

import json
import re
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, ProxyHandler, Request, build_opener

import pytest
from class_room import BASE, class_served, free_port, page, soaked
from patience import eventually

from lib_dlhpc.classroom import classes, database, learner, record, sending
from lib_dlhpc.cli import main
from lib_dlhpc.explore.server.class_server import for_the_teacher, own_address
from lib_dlhpc.explore.server.serve import served

OPEN = build_opener(ProxyHandler({})).open


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """The address and the folder of a class."""
    work = tmp_path_factory.mktemp("class")
    with class_served(page(work / "page.ipynb"), work / "class") as (address, _):
        yield address, work / "class"


def call(room, what, body=None, **headers):
    """Return the answer of a request of JSON, and its headers."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **headers}
    with OPEN(Request(f"{room[0]}class/{what}", data, headers)) as reply:
        text = reply.read()
        return (json.loads(text) if text else None), reply.headers


def refused(room, *call_, **headers):
    with pytest.raises(HTTPError) as error:
        call(room, *call_, **headers)
    return error.value.code


def cookie(headers):
    """The learner's cookie among those of an answer."""
    (found,) = [each for each in headers.get_all("Set-Cookie") if each.startswith("dlhpc-learner=")]
    assert "SameSite=Strict" in found
    return found.split(";")[0]


def names(room):
    return database.names(room[1] / classes.DATABASE).values()


def test_a_visitor_joins_by_one_click_and_is_known_by_the_cookie(room):
    assert call(room, "api/me")[0]["joined"] is False
    _, headers = call(room, "api/join", {"name": "Anna"})
    assert call(room, "api/me", Cookie=cookie(headers))[0] == {"joined": True, "name": "Anna"}
    assert call(room, "api/me", Cookie="dlhpc-learner=made-up")[0]["joined"] is False
    assert refused(room, "api/join", {"name": "two\nlines"}) == 400


@pytest.mark.parametrize(("forwarded", "secure"), [("https", True), ("http", False)])
def test_a_cookie_given_over_https_comes_back_over_nothing_else(room, forwarded, secure):
    _, headers = call(room, "api/join", {}, **{"X-Forwarded-Proto": forwarded})
    given = [each for each in headers.get_all("Set-Cookie") if each.startswith("dlhpc-")]
    assert given
    assert all(("; Secure" in each) == secure for each in given)


def test_who_has_joined_may_change_the_name(room):
    _, headers = call(room, "api/join", {})
    me = {"Cookie": cookie(headers)}
    found = classes.member(room[1], me["Cookie"].partition("=")[2])
    record.add(found.folder, found.id, "toy", "q", "guess", answer="3")
    eventually(lambda: found.id in database.names(room[1] / classes.DATABASE))
    for name, known in (("Eva", "Eva"), ("", "Eva"), ("Eve", "Eve")):
        assert call(room, "api/join", {"name": name}, **me)[0] == {"joined": True, "name": known}
        assert database.names(room[1] / classes.DATABASE)[found.id] == known
    assert call(room, "api/me", **me)[0]["name"] == "Eve"


def test_a_wrong_token_is_said_when_joining_and_nothing_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(learner.HOME, str(tmp_path / "home"))
    notebook, folder = page(tmp_path / "page.ipynb"), tmp_path / "class"
    with served(notebook, 0, f"--class={folder}", "--token=secret") as (address, _):
        home = address.partition("?")[0]
        assert main(["class", "join", f"{home}?token=wrong"]) == 2
        said = capsys.readouterr().err
        assert "token of this address is wrong" in said and not (tmp_path / "home").exists()
        assert main(["class", "join", f"{home}elsewhere?token=secret"]) == 2
        assert "no class at this address" in capsys.readouterr().err
        assert main(["class", "join", address]) == 0
        kept = learner.at_home()
        record.add(kept.folder, kept.id, "toy", "q", "guess", answer="3")
        assert main(["class", "send"]) == 0
        assert main(["class", "join", "--name", "Fay"]) == 0
        assert learner.at_home().server == kept.server
        assert list(database.names(folder / classes.DATABASE).values()) == ["Fay"]
        assert main(["class", "join", f"{home}?token=wrong"]) == 2
        assert learner.at_home().server == kept.server


def test_what_a_kernel_wrote_is_collected_and_one_click_deletes_it(room):
    _, headers = call(room, "api/join", {"name": "Bert"})
    token = cookie(headers).partition("=")[2]
    bert = classes.member(room[1], token)
    record.add(bert.folder, bert.id, "toy", "q", "guess", answer="3")
    eventually(lambda: "Bert" in names(room))
    assert call(room, "api/forget", {}, Cookie=cookie(headers))[0] == {"forgotten": 1}
    assert "Bert" not in names(room) and not bert.folder.exists()
    assert call(room, "api/me", Cookie=cookie(headers))[0]["joined"] is False


def test_a_learner_sees_their_own_report_and_nobody_elses(room):
    _, headers = call(room, "api/join", {"name": "Gil"})
    gil = classes.member(room[1], cookie(headers).partition("=")[2])
    about = {"answer": "<b>3", "asked": "How long?", "result": "5 ms", "right": False}
    record.add(gil.folder, gil.id, "one_step", "q", "guess", **about)
    record.add(gil.folder, gil.id, "one_step", "c", "check", **about)
    shown = {}
    for who in (cookie(headers), "dlhpc-learner=made-up"):
        with OPEN(Request(f"{room[0]}report", headers={"Cookie": who})) as reply:
            shown[who] = reply.read().decode()
    own, other = shown.values()
    assert "0 of 1 checks right on the first try" in own and "&lt;b&gt;3" in own
    assert 'href="voila/render/01_one_step.ipynb"' in own and "not yet right" in own
    assert "How long?" not in other and "Nothing of yours is kept" in other


def test_nobody_sends_answers_of_another_or_what_is_none(room, tmp_path):
    carl = learner.join(tmp_path / "carl", "Carl", room[0])
    entry = record.add(carl.folder, carl.id, "toy", "q", "guess", answer="3")
    body = {"entries": [json.loads(entry.line())]}
    assert refused(room, "api/records", body) == 403
    assert refused(room, "api/records", body, **{"X-Learner": "another"}) == 403
    mine = {"X-Learner": carl.token}
    assert refused(room, "api/records", {"entries": [{"id": "x"}]}, **mine) == 400
    assert refused(room, "api/records", [], **mine) == 400
    assert refused(room, "api/records", body, **mine, **{"Content-Type": "text/plain"}) == 403
    assert call(room, "api/records", body, **mine)[0] == {"acknowledged": 1, "new": 1}
    assert call(room, "api/records", body, **mine)[0] == {"acknowledged": 1, "new": 0}


def test_what_is_sent_is_sent_once_and_forgetting_reaches_the_class(room, tmp_path):
    dora = learner.join(tmp_path / "dora", "Dora", room[0])
    for number in range(3):
        record.add(dora.folder, dora.id, "toy", f"q{number}", "guess", answer="3")
    assert (sending.unsent(dora), sending.send(dora), sending.send(dora)) == (3, 3, 0)
    assert sending.unsent(dora) == 0
    assert sending.request(dora, "forget", {}) == {"forgotten": 3}
    assert "Dora" not in names(room)


def test_one_address_is_for_learners_and_one_for_the_teacher(tmp_path, capsys):
    board = for_the_teacher(tmp_path, "http://127.0.0.1:8765/", "secret", "0.0.0.0")
    first, second = capsys.readouterr().out.splitlines()
    assert "learners" in first and first.endswith(":8765/?token=secret")
    assert f"{own_address()}:8765" in first and classes.keys(tmp_path).board not in first
    assert "you alone" in second and board in second
    for_the_teacher(tmp_path, "http://127.0.0.1:8765/", "", "127.0.0.1")
    assert "this machine only" in capsys.readouterr().out.splitlines()[0]


def test_everything_on_a_page_has_the_path_of_the_proxy(room):
    """The page of a notebook and the board name nothing outside of the base URL, and all that they name is there."""
    assert room[0].endswith(BASE)
    key = classes.keys(room[1]).board
    browser = build_opener(ProxyHandler({}), HTTPCookieProcessor())
    for path in ("", f"class/board?key={key}"):
        with browser.open(f"{room[0]}{path}") as reply:
            text = reply.read().decode()
        named = re.findall(r'(?:src|href)="(/[^"]*)"', text)
        assert all(each.startswith(BASE) for each in named)
        files = [each for each in named if "/static/" in each or "/built/" in each]
        assert bool(files) is not bool(path)
        for each in files:
            assert OPEN(f"{room[0].removesuffix(BASE)}{each}").status == 200, each
    with pytest.raises(HTTPError, match="404"):
        OPEN(room[0].removesuffix(BASE))


def test_the_board_is_for_who_has_the_key(room):
    key = classes.keys(room[1]).board
    assert refused(room, "board") == refused(room, "api/board") == 403
    assert refused(room, "board?key=wrong") == 403
    with OPEN(f"{room[0]}class/api/board?key={key}") as reply:
        shown = json.load(reply)
    assert {"learners", "questions", "version"} <= set(shown)
    _, headers = call(room, f"api/board?key={key}&since={shown['version']}")
    assert headers["Content-Length"] in (None, "0")


def test_a_browser_that_was_let_in_stays_so_when_the_server_starts_again(tmp_path):
    notebook, folder, door = page(tmp_path / "page.ipynb"), tmp_path / "class", "--token=secret"
    browser = build_opener(ProxyHandler({}), HTTPCookieProcessor())
    port = free_port()
    for life in range(2):
        served_so = served(notebook, 0, f"--class={folder}", f"--port={port}", door)
        with served_so as (address, _):
            home, _, token = address.partition("?")
            reply = browser.open(address if life == 0 else home)
            kernel = re.search(r'"kernelId": "([^"]+)"', reply.read().decode())[1]
            assert browser.open(f"{home}api/kernels/{kernel}").status == 200
            with pytest.raises(HTTPError, match="403"):
                OPEN(f"{home}api/kernels/{kernel}")
    assert token == "token=secret"
    assert (folder / classes.SETTINGS).stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_doubled_while_the_server_is_killed(tmp_path):
    found = soaked(tmp_path, clients=4, answers=8, pause=0.1, lives=[0.4], visitors=1)
    answers = [entry for entry in found.answered if entry.question]
    assert len(answers) >= 40 and len(found.acknowledged) == 8
    assert sorted(e.line() for e in found.arrived) == sorted(e.line() for e in found.answered)
    assert set(found.acknowledged) <= {(e.learner, e.answer) for e in found.arrived}
    assert sum(found.shown.values()) == 4 * 4 + 1  # each learner by the first answer to a question
