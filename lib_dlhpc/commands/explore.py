"""`dlhpc explore`: open the dashboards in the browser, or copy the course to work in."""

import argparse
from pathlib import Path

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore import files
from lib_dlhpc.explore.server.visitors import add_visitor_options, tcp_port
from lib_dlhpc.lifetime import signals


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `explore` to the command line."""
    page = subparsers.add_parser(
        "explore", help="open the course and its dashboards in the browser"
    )
    what = page.add_mutually_exclusive_group()
    what.add_argument(
        "page",
        nargs="?",
        help="a notebook or a folder of them (default: the course, opened at its start page)",
    )
    what.add_argument(
        "--copy",
        metavar="FOLDER",
        help="copy the course's modules and labs and the guide into a folder in which you can work; start no server",
    )
    page.add_argument(
        "--no-browser", action="store_true", help="print the address instead of opening a browser"
    )
    page.add_argument("--port", type=tcp_port, default=0, help="TCP port (default: a free one)")
    page.add_argument(
        "--ip", default="127.0.0.1", help="address to listen on (default: this machine only)"
    )
    add_visitor_options(page)
    page.set_defaults(command=_explore)


def _explore(options: argparse.Namespace) -> int:
    if options.copy is not None:
        target = Path(options.copy)
        files.copy(target)
        modules, labs = target / "modules", target / "labs"
        print(f"{modules} and {labs} are yours to change.")
        print(f"As notebooks: jupyter lab {target}; as pages: dlhpc explore {modules}")
        return 0
    from lib_dlhpc.explore.server.serve import serve

    page = Path(options.page) if options.page else files.folder() / "modules"
    if not page.exists():
        raise SpecError(f"{page}: no such notebook or folder.")
    try:
        serve(
            page,
            options.port,
            options.ip,
            not options.no_browser,
            token=options.token or "",
            allow_hosts=options.allow_host,
            base=options.base_url,
        )
    except KeyboardInterrupt:
        if not signals.by_keys():
            raise
    return 0
