"""A simulation in a terminal: its line comes and goes, Ctrl-C ends it cleanly, the trace is whole or not there."""

import io
import json
import signal

import pytest

from lib_dlhpc.cli import main
from lib_dlhpc.simulation import messages
from lib_dlhpc.simulation.terminal import ProgressLine


class Terminal(io.StringIO):
    def isatty(self):
        return True


def told(stream, seconds):
    """Tell a line of one message each eighth of a second for so long, and clear it."""
    ticks = iter(range(10_000))
    line = ProgressLine(stream, lambda: next(ticks) / 8)
    for n in range(1, round(8 * seconds) + 1):
        line(n * 1e-3, n, 48)
    before = stream.getvalue()
    line.clear()
    return line, before


def test_a_terminal_sees_one_line_that_is_taken_away():
    stream = Terminal()
    line, before = told(stream, 3)
    last = before.split("\r")[-1]
    assert last == "simulating  50%: 24 ms simulated, 24 of 48 messages, 8 per second"
    assert before.count("\r") == 17 and "\n" not in before
    assert stream.getvalue() == before + "\r" + " " * len(last) + "\r"
    assert (line.seconds, line.delivered) == (0.024, 24)


@pytest.mark.parametrize(("stream", "seconds"), [(Terminal(), 0.75), (io.StringIO(), 5)])
def test_what_is_quick_or_no_terminal_sees_nothing(stream, seconds):
    line, _ = told(stream, seconds)
    assert stream.getvalue() == "" and line.delivered == round(8 * seconds)


EVENTS = ["simulate", "goyal-2017", "--fidelity", "events", "--set", "strategy.nodes=2"]


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
def test_ctrl_c_ends_with_one_line_and_no_file(fidelity, tmp_path, capsys, monkeypatch):
    path = tmp_path / "out.json"
    monkeypatch.setattr(ProgressLine, "__call__", lambda *_: signal.raise_signal(signal.SIGINT))
    assert main([*EVENTS, "--fidelity", fidelity, "--trace", str(path)]) == 130
    shown = capsys.readouterr()
    assert shown.err.startswith("dlhpc: Cancelled: 0 s had been simulated")
    assert shown.err.count("\n") == 1 and not list(tmp_path.iterdir())
    # The prediction was there before.
    assert shown.out.splitlines()[1].startswith("  predicted: ") and shown.out.count("\n") == 2


def test_ctrl_c_in_the_middle_of_an_event_too(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        messages.Recorder, "__call__", lambda *_: signal.raise_signal(signal.SIGINT)
    )
    assert main([*EVENTS, "--trace", str(tmp_path / "out.json")]) == 130
    assert "Cancelled" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_ctrl_c_while_the_trace_is_written_leaves_the_old_one(tmp_path, capsys, monkeypatch):
    path = tmp_path / "out.json"
    path.write_text("old")
    monkeypatch.setattr(json, "dumps", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    assert main([*EVENTS, "--trace", str(path)]) == 130
    assert capsys.readouterr().err == "dlhpc: Cancelled.\n"
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("most", [None, 100, 0])
def test_a_trace_holds_messages_and_says_what_it_leaves_out(most, tmp_path, capsys):
    path = tmp_path / "out.json"
    asked = [] if most is None else ["--messages", str(most)]
    assert main([*EVENTS, "--trace", str(path), *asked]) == 0
    events = json.loads(path.read_text())["traceEvents"]
    arrows = sum(event["ph"] == "s" for event in events)
    said = capsys.readouterr().err
    if most:
        assert arrows == 100
        assert said.startswith(f"dlhpc: {path}: the first 100 of ") and "--messages N" in said
    else:
        assert not said and (arrows > 100) == (most is None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--messages", "10"], "needs --trace"),
        (["--messages", "-1", "--trace", "x.json"], "messages = -1"),
        (["--messages", "10", "--trace", "x.json", "--fidelity", "rounds"], "'events' only"),
    ],
)
def test_messages_where_there_are_none_are_refused(arguments, words, capsys):
    assert main([*EVENTS, *arguments]) == 2
    shown = capsys.readouterr()
    assert words in shown.err and shown.err.count("\n") == 1 and not shown.out
