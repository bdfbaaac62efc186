"""What pages are served with, and to whom."""

import argparse
import json
import os
import re
import shutil
import signal
import socket
import tempfile
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from patience import PATIENCE, eventually

from lib_dlhpc.explore.blocks import built
from lib_dlhpc.explore.server.before_start import draw
from lib_dlhpc.explore.server.serve import served, voila_configuration
from lib_dlhpc.explore.server.visitors import add_visitor_options

STATIC = "/voila/templates/dlhpc/static/page.css"
NO_KERNEL = "00000000-0000-0000-0000-000000000000"
PLACES = {  # what is there without a page, and what it answers
    "/": 200,
    "/voila/tree": 200,
    STATIC: 200,
    "/voila/static/voila.js": 200,
    "/voila/labextensions/x": 404,
    "/voila/api/themes/x": 404,
    "/voila/files/x": 403,
    "/voila/query/" + NO_KERNEL: 404,
    f"/api/kernels/{NO_KERNEL}": 404,
    f"/api/kernels/{NO_KERNEL}/channels": 404,
    "/nowhere": 404,
    "/login": 404,
}
KEY = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    page = {"cells": [], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    (folder / "page.ipynb").write_text(json.dumps(page), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def room(folder):
    """The address of a server that is open to all programs of this machine."""
    with served(folder, 0, "--allow-host=Room.example") as (address, _):
        yield address


@pytest.fixture(scope="module")
def closed_room(folder):
    """The address, as it is printed, of a server with a token."""
    with served(folder, 0, "--token=a secret&", "--preheat=1") as (address, _):
        yield address


def ask(address, path, host="", method="GET", **headers):
    """Return status, headers and text of an answer."""
    where = urlsplit(address)
    connection = HTTPConnection(where.hostname, where.port, timeout=PATIENCE)
    connection.putrequest(method, path, skip_host=True)
    for name, value in {"Host": host or where.netloc, **headers}.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    # What follows 101 is no text, and does not end.
    text = "" if answer.status == 101 else answer.read().decode("utf-8", "replace")
    connection.close()
    return answer.status, answer.headers, text


def kernel_of(text):
    return re.search(r'"kernelId": "([^"]+)"', text).group(1)


def test_a_page_is_asked_for_a_sign_of_life_before_its_connection_is_closed_for_want_of_one():
    from jupyter_server.base.websocket import (
        WebSocketMixin,  # heavy, and every worker collects this file
    )

    for ip in ("127.0.0.1", "0.0.0.0"):
        configuration = voila_configuration(Path("page.ipynb"), 8866, ip, 0)
        connection = WebSocketMixin()
        connection.settings = dict(configuration.Voila.get("tornado_settings", {}))
        assert connection.ping_timeout > connection.ping_interval > 0


@pytest.mark.skipif(os.name != "posix", reason="its kernels are no forks")
@pytest.mark.skipif(os.name != "posix", reason="drawn in the same process")
def test_pages_are_drawn_in_another_process_whose_memory_ends_with_it(tmp_path, monkeypatch):
    file = tmp_path / "drawn by"

    def drawings() -> None:
        if not file.exists():
            file.write_text(str(os.getpid()))

    monkeypatch.setattr(built, "drawn", file.exists)
    monkeypatch.setattr(built, "drawings", drawings)
    monkeypatch.setattr(built, "vega", lambda: None)
    draw(of_course=False)
    assert file.read_text() not in ("", str(os.getpid()))


def test_a_server_ends_while_its_first_kernel_is_starting(folder):
    with served(folder, 1) as (_, pid):
        process = psutil.Process(pid)
        whole = [process, *process.children(recursive=True)]
        process.terminate()
        _, alive = psutil.wait_procs(whole, PATIENCE)
        assert not alive


@pytest.mark.skipif(os.name != "posix", reason="has no sockets with a path")
@pytest.mark.parametrize("name", ["t", "of-a-job-on-a-cluster" * 6], ids=["short", "long"])
def test_a_page_gets_its_kernel_wherever_temporary_files_go_and_kill_leaves_none(
    folder, monkeypatch, name
):
    """The path of a socket has about a hundred characters at most."""
    above = Path(tempfile.mkdtemp(prefix="d", dir="/tmp"))
    (above / name).mkdir()
    monkeypatch.setenv("TMPDIR", str(above / name))
    with served(folder, 1) as (address, pid):
        assert ask(address, "/voila/render/page.ipynb")[0] == 200
        kernels = psutil.Process(pid).children(recursive=True)
        found = {link.laddr for kernel in kernels for link in kernel.net_connections("unix")}
        sockets = [path for path in found if path.startswith("/tmp/")]
        assert sockets and all(map(os.path.exists, sockets))
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not any(map(os.path.exists, sockets)), "the end of its sockets")
    eventually(lambda: not os.listdir(above / name), "an empty folder")
    shutil.rmtree(above)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "93.184.216.34",
        "[2606:2800:220::1]",
        "room.example.evil",
        "xlocalhost",
        "127.0.0.1:80:80",
    ],
)
def test_under_a_foreign_name_nothing_is_answered(room, host):
    """A page of another site whose name leads here (DNS rebinding) must not read or start anything."""
    for path in PLACES:
        assert ask(room, path, host)[0] in (400, 403), path
        assert ask(room, path, host, **KEY)[0] in (400, 403), path
    assert ask(room, f"/voila/api/shutdown/{NO_KERNEL}", host, "POST")[0] in (400, 403)


def test_under_a_name_of_its_own_everything_is(room):
    port = urlsplit(room).port
    for name in ("localhost", "LOCALHOST", "localhost.", "127.0.0.1", "[::1]", "room.example"):
        for host in (name, f"{name}:{port}"):
            assert {path: ask(room, path, host)[0] for path in PLACES} == PLACES, host
    assert ask(room, f"/voila/api/shutdown/{NO_KERNEL}", method="POST")[0] == 204


def test_a_refused_name_is_reported_with_the_option_that_allows_it(room):
    _, _, text = ask(room, "/", "class.example:8866")
    assert "dlhpc explore --allow-host class.example" in text


@pytest.mark.parametrize("ip", ["127.0.0.1", "::1", "localhost", "0.0.0.0", "192.0.2.7", "node7"])
def test_names_are_those_that_lead_to_where_it_listens(ip):
    from lib_dlhpc.explore.server.door import own_names

    names = own_names(ip, ["Class.Example"])
    assert {"localhost", ip, "class.example"} <= names
    assert (socket.gethostname().lower() in names) == (ip not in ("127.0.0.1", "::1", "localhost"))


def test_a_server_for_others_is_asked_by_any_address_but_by_no_foreign_name(folder):
    with served(folder, 0, "--ip=0.0.0.0") as (address, _):
        mine = (socket.gethostname(), "192.0.2.7", "[2001:db8::7]:8866", "127.0.0.1", "localhost")
        assert [ask(address, STATIC, host)[0] for host in mine] == [200] * len(mine)
        assert ask(address, STATIC, "evil.example")[0] == 403


def test_without_its_token_a_room_answers_nothing(closed_room):
    token = urlsplit(closed_room).query.removeprefix("token=")
    assert token == "a%20secret%26"
    for path in PLACES:
        for wrong in ("", "?token=", "?token=another", f"?token={token}x"):
            status, headers, text = ask(closed_room, path + wrong)
            assert status == 403 and "Location" not in headers, path
            assert "secret" not in text
            assert ask(closed_room, path + wrong, **KEY)[0] == 403
            assert ask(closed_room, path + wrong, Cookie="username-127-0-0-1=x")[0] == 403
    shutdown = f"/voila/api/shutdown/{NO_KERNEL}"
    assert ask(closed_room, shutdown, method="POST")[0] == 403


def test_with_its_token_a_room_answers_and_then_to_the_cookie(closed_room):
    query, places = "?" + urlsplit(closed_room).query, dict(PLACES)
    places["/voila/query/" + NO_KERNEL] = 400  # a WebSocket, with kernels that are kept ready
    assert {path: ask(closed_room, path + query)[0] for path in places} == places
    _, headers, _ = ask(closed_room, "/" + query)
    cookie = "; ".join(value.partition(";")[0] for value in headers.get_all("Set-Cookie"))
    assert {path: ask(closed_room, path, Cookie=cookie)[0] for path in places} == places
    assert ask(closed_room, "/", "evil.example", Cookie=cookie)[0] == 403


def test_a_page_speaks_to_its_kernel_from_its_own_origin_only(closed_room):
    query = "?" + urlsplit(closed_room).query
    _, headers, text = ask(closed_room, f"/voila/render/page.ipynb{query}")
    cookie = "; ".join(value.partition(";")[0] for value in headers.get_all("Set-Cookie"))
    for path in (f"/api/kernels/{kernel_of(text)}/channels", f"/voila/query/{kernel_of(text)}"):
        own = "http://" + urlsplit(closed_room).netloc
        assert ask(closed_room, path, Origin=own, Cookie=cookie, **KEY)[0] == 101
        assert ask(closed_room, path, Origin=own, **KEY)[0] == 403
        for origin in ("http://evil.example", "null", "http://127.0.0.1:1", "https://localhost"):
            assert ask(closed_room, path, Origin=origin, Cookie=cookie, **KEY)[0] == 403, origin


ODD = [
    "",
    "/",
    "x",
    "x/y",
    "x/static/y",
    "dlhpc/static",
    "dlhpc/static/",
    "dlhpc/static/../conf.json",
    "../x",
    "dlhpc/static/%2e%2e/conf.json",
    "dlhpc/static/..%2fconf.json",
    "x/static/../../../etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "%2fetc%2fpasswd",
    "%00",
    "dlhpc/static/%00",
    "a%00b/static/c",
    "%0a",
    "%0d%0aX:y",
    "dlhpc/./static/page.css",
    "///static/x",
    "./static/x",
    "*",
    "~root",
    "<script>",
    "%3Cscript%3E",
    "C:%5cx",
    5000 * "a",
    "dlhpc/static/" + 5000 * "a",
    "page.ipynb/x",
]
ROUTES = [
    *("", "voila/templates/", "voila/static/", "voila/labextensions/", "voila/files/"),
    *("voila/api/themes/", "voila/render/", "voila/tree/", "voila/api/contents/"),
    *("voila/query/", "api/kernels/"),
]


def test_no_address_however_odd_is_an_error_of_the_server(room):
    for route in ROUTES:
        for odd in ODD:
            for method in ("GET", "HEAD"):
                status, _, text = ask(room, f"/{route}{odd}", method=method)
                assert status < 500, (method, route, odd)
                assert "root:x:" not in text and "<script>" not in text
                if route == "voila/templates/":
                    assert status == 404, (method, odd)


def test_a_page_of_an_error_asks_nobody_for_anything(room, closed_room):
    wrong = [
        "/nowhere",
        "/voila/render/no.ipynb",
        "/voila/tree/no",
        "/voila/files/x",
        "/voila/templates/x",
        "/%00",
    ]
    pages = [ask(room, path) for path in wrong]
    pages += [ask(room, "/", "evil.example"), ask(closed_room, "/"), ask(room, "/", method="PUT")]
    for status, headers, text in pages:
        if status == 302:  # a file: see there
            status, headers, text = ask(room, headers["Location"])
        assert status >= 400 and headers["Content-Type"].startswith("text/html")
        fetched = re.findall(r'(?:src|href|action|url)\s*[=(]\s*["\']?([^"\'>)]*)', text)
        assert all(address in ("/", "data:,") for address in fetched), fetched
        assert "<script" not in text and "@import" not in text


def test_a_token_that_is_not_given_is_made_and_an_empty_one_refused():
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_visitor_options(parser)
    made = parser.parse_args(["--token"]).token
    assert re.fullmatch(r"[\w-]{20,}", made)
    assert parser.parse_args(["--token=x"]).token == "x" and not parser.parse_args([]).token
    for empty in ("--token=", "--token= "):
        with pytest.raises(argparse.ArgumentError, match="not empty"):
            parser.parse_args([empty])
