"""The parsers of all commands."""

import argparse

from lib_dlhpc.cli import parser_of


def leaves(parser: argparse.ArgumentParser | None = None) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers that run a command, by their words: "predict", "trace show"."""
    parser = parser or parser_of()
    found = {}
    if parser.get_default("command"):
        found[parser.prog.partition(" ")[2]] = parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                found |= leaves(below)
    return found
