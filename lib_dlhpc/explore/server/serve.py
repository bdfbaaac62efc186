"""serve: notebooks as pages of their own, on this machine, with nothing fetched from elsewhere.

Voila runs in this process; each visitor gets a kernel.  Kernels are started before anyone asks,
end with the page that used them, and are culled when a page went away without saying so.
"""

import argparse
import json
import logging
import os
import re
import socket
import subprocess
import sys
import tempfile
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lib_dlhpc.classroom import classes, recording
from lib_dlhpc.explore import course
from lib_dlhpc.explore.blocks import built
from lib_dlhpc.explore.blocks.plain_text import PAGE_HAS_VEGA
from lib_dlhpc.explore.server import forked
from lib_dlhpc.explore.server.before_start import draw
from lib_dlhpc.explore.server.class_server import collecting, for_the_teacher
from lib_dlhpc.explore.server.visitors import add_visitor_options
from lib_dlhpc.lifetime import owned

HERE = Path(__file__).parent
IDLE = 600  # s without a message and without a page, then a kernel is ended
LONGEST = 20  # characters of a folder for temporary files; a socket's path has 103 at most (macOS), 107 (Linux)
# They have nothing to do on such a page, and some of them throw there.
UNWANTED_EXTENSIONS = [
    "ipyparallel-labextension",
    "jupyterlab_pygments",
    "nbdime-jupyterlab",
    "@jupyterlab/git",
    "@jupyter-notebook/lab-extension",
]


def serve(
    target: str | Path,
    port: int = 0,
    ip: str = "127.0.0.1",
    browser: bool = True,
    preheat: int = 1,
    token: str = "",
    allow_hosts: Sequence[str] = (),
    classroom: Path | None = None,
    base: str = "/",
    hub: bool = False,
) -> None:
    """Serve a notebook, or a folder of them as a gallery, until Ctrl-C; all kernels end with it.

    port: 0 takes a free one.  ip: who may come; the default is this machine only, "0.0.0.0" all.
    preheat: kernels kept ready, about 55 MB each: for each notebook, of a course for its explorer alone, since a dozen
    that start at once would delay the first page by more than they save; 0 starts them on demand.
    token: what visitors have to bring, in the address that is printed; "": nothing.
    allow_hosts: names by which others may ask for this server, such as that of a proxy, besides its own.
    classroom: the folder of a class; its learners' answers are collected there.
    base: the path of all addresses, for a proxy that passes it on. hub: a JupyterHub says who comes.
    Raises FileNotFoundError for a target that is neither a notebook nor a folder.
    """
    path = _checked(target)
    of_course = (path / course.EXPLORER).exists()
    draw(of_course)  # before there are kernels, each of which would
    _prepare_environment(ip, classroom)

    def listening(at: int) -> None:
        if hub:
            print(f"The pages are at {base} of the hub; the board at {base}class/board", flush=True)
            return
        home = f"http://{'127.0.0.1' if ip == '0.0.0.0' else ip}:{at}{base}"
        address = _announced(path, home, token, ip, classroom)
        if browser:
            webbrowser.open(address)

    with owned.temporary_folder("dlhpc-", _short_folder()) as sockets, collecting(classroom):
        if forked.CONTEXT is not None:
            forked.begin(["lib_dlhpc.explore.server.serve", *imported_modules(path)], sockets)
        from lib_dlhpc.explore.server.application import Server

        config = voila_configuration(path, port or _free_port(ip), ip, preheat, token, allow_hosts)
        config.Voila.base_url, config.Voila.connection_dir_root = base, str(sockets)
        doors = _add_class(config, path, classroom, hub)
        server = Server(config=config)
        server.of_course, server.listening, server.classroom = of_course, listening, classroom
        server.before_the_door = doors
        server.initialize([str(path)])
        server.start()


def _announced(path: Path, home: str, token: str, ip: str, classroom: Path | None) -> str:
    """Print where the pages are, and return the address for who started them."""
    if classroom:
        return for_the_teacher(classroom, home, token, ip)
    address = f"{home}?token={quote(token)}" if token else home
    print(f"{path.name} is at {address}   (Ctrl-C ends it)", flush=True)
    return address


def _checked(target: str | Path) -> Path:
    path = Path(target).resolve()
    if not path.is_dir() and path.suffix != ".ipynb":
        raise FileNotFoundError(f"neither a notebook nor a folder: {path}")
    if not path.exists():
        raise FileNotFoundError(f"no such notebook or folder: {path}")
    return path


@contextmanager
def served(target: str | Path, preheat: int = 0, *options: str) -> Iterator[tuple[str, int]]:
    """Serve from a process of its own; yields (address, process id) and ends it, kernels included.

    options: more of the command line.
    Raises RuntimeError with what the process said if it does not come up.
    """
    command = [
        sys.executable,
        "-m",
        "lib_dlhpc.explore.server.serve",
        str(target),
        "--no-browser",
        f"--preheat={preheat}",
        *options,
    ]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout is not None
            address = re.search(r"http://\S+", process.stdout.readline())
            if address is None:
                process.wait()
                errors.seek(0)
                raise RuntimeError(f"the server did not start: {errors.read()[-2000:]}")
            yield address.group(0), process.pid
        finally:
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def kernels_of(server: Any) -> list[Any]:
    """Return the kernels of a server, a psutil.Process: they are forked from one of its children, or are children."""
    import psutil  # type: ignore[import-untyped, unused-ignore]

    found = []
    for child in server.children():
        with suppress(psutil.Error):  # it may end meanwhile
            words = " ".join(child.cmdline())
            if "forkserver" in words:
                found += child.children()
            elif "ipykernel_launcher" in words:
                found.append(child)
    return found


def _prepare_environment(ip: str, classroom: Path | None) -> None:
    """What Voila and its kernels read from the environment."""
    from lib_dlhpc.explore.server.door import is_local

    if classroom or not is_local(ip):
        os.environ[recording.CLASS] = str(classroom or recording.NOBODY)
    paths = [str(HERE), *filter(None, [os.environ.get("JUPYTER_PATH")])]
    os.environ["JUPYTER_PATH"] = os.pathsep.join(paths)
    os.environ[PAGE_HAS_VEGA] = "1"
    # One visitor, one core: thirty kernels with a thread pool each would only fight.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    # Jupyter waits 90 s for an answer to what it asks a page every 30 s, and Tornado, which reads
    # the two settings but does not use them, warns of that. Both at 30 s close a page before the
    # first question, and one that is closed while it loads may never draw. A page of an earlier run
    # that is still open asks every few seconds, and is refused: no news for a terminal either.
    for name in ("tornado.general", "tornado.access"):
        logging.getLogger(name).setLevel(logging.ERROR)


def voila_configuration(
    path: Path, port: int, ip: str, preheat: int, token: str = "", allow_hosts: Sequence[str] = ()
) -> Any:
    """Return the configuration of a Voila server of this notebook or folder."""
    from traitlets.config import Config

    from lib_dlhpc.explore.server.door import (
        ANY_ADDRESS,
        NAMES,
        OF_COURSE,
        Nowhere,
        Visitors,
        is_local,
        own_names,
    )

    config = Config()
    config.Voila.update(ip=ip, port=port, open_browser=True, log_level="ERROR")
    config.Voila.update(token=token, identity_provider_class=Visitors)
    config.VoilaConfiguration.update(
        template="dlhpc",
        allow_template_override="NO",
        classic_tree=True,
        strip_sources=True,
        show_tracebacks=False,
        preheat_kernel=preheat > 0,
        default_pool_size=preheat,
        extension_denylist=UNWANTED_EXTENSIONS,
        multi_kernel_manager_class="lib_dlhpc.explore.server.pages.Kernels",
    )
    config.KernelRestarter.restart_limit = 0  # one that is started again has nothing of its page
    of_course = (path / course.EXPLORER).exists()
    if of_course:
        pools = {"default": {"pool_size": 0}, course.EXPLORER: {"pool_size": preheat}}
        config.VoilaKernelManager.kernel_pools_config = pools
    config.MappingKernelManager.update(
        cull_interval=60, cull_idle_timeout=IDLE, cull_connected=False, cull_busy=False
    )
    if os.name == "posix":
        config.KernelManager.transport = "ipc"  # sockets that only this user can open
    if forked.CONTEXT is not None:
        config.KernelProvisionerFactory.default_provisioner_name = forked.NAME
    config.Voila.tornado_settings = {
        NAMES: own_names(ip, allow_hosts),
        ANY_ADDRESS: not is_local(ip),
        OF_COURSE: of_course,
        "default_handler_class": Nowhere,
        "compress_response": not is_local(ip),  # pages are a third as heavy
    }
    return config


def _add_class(config: Any, path: Path, classroom: Path | None, hub: bool) -> list[Any]:
    """Let pages ask for consent, and login cookies be valid after the server of a class is started again.

    hub: it says who comes. Return the routes for who has not logged in, by which a browser comes back from its login.
    """
    config.VoilaConfiguration.page_config_hook = _page_hook(path, bool(classroom))
    if classroom is None:
        return []
    config.Voila.cookie_secret = classes.keys(classroom).cookie.encode()
    if not hub:
        return []
    from lib_dlhpc.explore.server.hub import add_hub, callback

    add_hub(config, classroom)
    return [callback(config.Voila.base_url)]


IMPORT = re.compile(r"^from (lib_dlhpc[\w.]*) import ", re.MULTILINE)


def imported_modules(path: Path) -> list[str]:
    """Return the modules of this package that a notebook, or those of a folder, import."""
    notebooks = sorted(path.rglob("*.ipynb")) if path.is_dir() else [path]
    return sorted({name for file in notebooks for name in IMPORT.findall(_source(file, "code"))})


def _source(file: Path, kind: str) -> str:
    """Return the text of all cells of a kind, "code" or "markdown"; empty for a notebook that cannot be read."""
    try:
        cells = json.loads(file.read_text(encoding="utf-8")).get("cells", [])
    except (OSError, ValueError):
        return ""
    return "\n".join("".join(c.get("source", "")) for c in cells if c.get("cell_type") == kind)


def _short_folder() -> Path:
    """Return a folder for temporary files whose path leaves room for the names of a kernel's sockets."""
    usual = Path(tempfile.gettempdir())
    return usual if len(str(usual)) <= LONGEST or os.name != "posix" else Path("/tmp")


def _free_port(ip: str) -> int:
    with socket.socket() as probe:
        probe.bind((ip, 0))
        return int(probe.getsockname()[1])


def _page_hook(root: Path, in_class: bool) -> Any:
    """Titles for the template: of the notebook shown, or of all notebooks of the gallery."""
    gallery = root.is_dir()
    folder = root if gallery else root.parent

    def hook(page_config: dict[str, Any], notebook_path: str = "", **_: Any) -> dict[str, Any]:
        page_config["dlhpcGallery"] = gallery
        page_config["dlhpcClass"] = in_class
        page_config["dlhpcVega"] = built.vega().name
        here = folder / (notebook_path or "").strip("/")
        if here.is_dir():
            notebooks = sorted(here.glob("*.ipynb"))
            page_config["dlhpcTitle"] = "What-if lab for deep learning on HPC"
            page_config["dlhpcAbout"] = {
                str(file.relative_to(folder).as_posix()): _words(file) for file in notebooks
            }
        elif here.exists():
            page_config["dlhpcTitle"] = _words(here)["title"]
            page_config["dlhpcCourse"] = in_course(here)
        return page_config

    return hook


def in_course(file: Path) -> dict[str, Any]:
    """Return where a notebook stands in the course; empty for one that is not of it."""
    before, here, after = course.place(file.name)
    known = {"explorer": course.EXPLORER}
    if file.name == course.EXPLORER:
        return {"name": file.stem, "at": 0, "after": course.PATH[0]._asdict(), **known}
    if here is None:
        return {}
    others = {"before": before and before._asdict(), "after": after and after._asdict()}
    path = [
        {name: getattr(each, name) for name in ("file", "number", "title")} for each in course.PATH
    ]
    at = {"at": course.PATH.index(here) + 1, "path": path, **known}
    return {**here._asdict(), **others, **at, "name": here.name, "terms": _terms(file.parent)}


TERM = re.compile(r"^- \*\*(?P<term>.+?)\*\*: (?P<text>.+?) \[[^]]+\]\([^)]+\)$", re.MULTILINE)


def _terms(folder: Path) -> dict[str, str]:
    """Return the terms of a folder's glossary.md with their definitions, without markup; none if it has none."""
    try:
        text = (folder / "glossary.md").read_text(encoding="utf-8")
    except OSError:
        return {}
    return {found["term"]: found["text"].replace("*", "") for found in TERM.finditer(text)}


def _words(file: Path) -> dict[str, str]:
    """Number, title and first paragraph of a notebook, from its name and its first text cell."""
    number = re.match(r"\d+", file.stem)
    title, about = file.stem.lstrip("0123456789_- ").replace("_", " ").capitalize(), ""
    text = _source(file, "markdown")
    heading = re.search(r"^#\s+(.+)$", text, flags=re.MULTILINE)
    if heading:
        title = re.sub(r"^\d+[\s.:]+", "", heading.group(1)).strip()
        paragraph = re.search(r"^(?![#\s>*|-]).+(?:\n(?!\s*$).+)*", text[heading.end() :], re.M)
        about = re.sub(r"[*_`]", "", paragraph.group(0)).replace("\n", " ") if paragraph else ""
    return {
        "number": number.group(0) if number else "",
        "title": title,
        "about": about if len(about) <= 160 else about[:157].rsplit(" ", 1)[0] + " …",
    }


def main(arguments: list[str] | None = None) -> None:
    """Command line: python -m lib_dlhpc.explore.server.serve TARGET."""
    parser = argparse.ArgumentParser(description="Serve a notebook or a folder of them as pages.")
    parser.add_argument("target", nargs="?", default=".")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--ip", default="127.0.0.1", help="0.0.0.0 lets other machines in")
    add_visitor_options(parser)
    parser.add_argument("--preheat", type=int, default=1, help="kernels kept ready")
    parser.add_argument("--class", dest="classroom", type=Path, help="the folder of a class")
    parser.add_argument("--no-browser", action="store_true")
    given = parser.parse_args(arguments)
    serve(
        given.target,
        given.port,
        given.ip,
        not given.no_browser,
        given.preheat,
        token=given.token or "",
        allow_hosts=given.allow_host,
        classroom=given.classroom and given.classroom.resolve(),
        base=given.base_url,
    )


if __name__ == "__main__":
    main()
