"""Options of the command line that say who may visit the dashboards; light, as every command reads them."""

import argparse
import re
import secrets


def add_visitor_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say who may come."""
    parser.add_argument(
        "--token",
        nargs="?",
        type=_token,
        const=secrets.token_urlsafe(16),
        help="let in only who has the address with this token (default: one made for this run)",
    )
    add_host_option(parser)


def tcp_port(text: str) -> int:
    """Return the number of a TCP port, for the parser of a command."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r}: legal: 0 to 65535")
    return int(text)


def add_host_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that says by which names the server goes."""
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which others may ask for this server, such as that of a proxy; may be repeated",
    )
    parser.add_argument(
        "--base-url",
        type=_base,
        default="/",
        metavar="/PATH/",
        help="the path under which a proxy passes requests on, unchanged (default: /)",
    )


def _base(text: str) -> str:
    if not re.fullmatch(r"/([\w.~-]+/)*", text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a path as /course/ or /")
    return text


def _token(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("a token is not empty; --token alone makes one")
    return text
