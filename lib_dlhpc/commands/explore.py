"""`dlhpc explore`: open the dashboards in the browser."""

import argparse
from pathlib import Path

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.server.visitors import add_visitor_options
from lib_dlhpc.lifetime import signals

MODULES = Path(__file__).resolve().parents[2] / "modules"


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `explore` to the command line."""
    page = subparsers.add_parser("explore", help="open the dashboards in the browser")
    page.add_argument(
        "page",
        nargs="?",
        help="a notebook or a folder of them (default: the course, opened at its front door)",
    )
    page.add_argument(
        "--no-browser", action="store_true", help="print the address and open nothing"
    )
    page.add_argument("--port", type=int, default=0, help="TCP port (default: a free one)")
    page.add_argument(
        "--ip", default="127.0.0.1", help="address to listen on (default: this machine only)"
    )
    add_visitor_options(page)
    page.set_defaults(command=_explore)


def _explore(options: argparse.Namespace) -> int:
    from lib_dlhpc.explore.server.serve import serve

    page = Path(options.page) if options.page else MODULES
    if not page.exists():
        raise SpecError(
            f"{page}: no such notebook or folder; run from a clone of the repository, or name one."
        )
    try:
        serve(
            page,
            options.port,
            options.ip,
            not options.no_browser,
            token=options.token or "",
            allow_hosts=options.allow_host,
        )
    except KeyboardInterrupt:
        if not signals.by_keys():
            raise
    return 0
