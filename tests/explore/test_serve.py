"""What pages are served with."""

from pathlib import Path

from jupyter_server.base.websocket import WebSocketMixin

from lib_dlhpc.explore.serve import _configuration


def test_a_page_is_asked_for_a_sign_of_life_before_its_connection_is_closed_for_want_of_one():
    for ip in ("127.0.0.1", "0.0.0.0"):
        configuration = _configuration(Path("page.ipynb"), 8866, ip, 0)
        connection = WebSocketMixin()
        connection.settings = dict(configuration.Voila.get("tornado_settings", {}))
        assert connection.ping_timeout > connection.ping_interval > 0
