"""`dlhpc class`: join a class, leave it, see your own report; serve a class, collect its answers, export them."""

import argparse
import os
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from lib_dlhpc.classroom import (
    classes,
    collecting,
    database,
    grades,
    learner,
    record,
    report,
    sending,
)
from lib_dlhpc.commands.output import add_output, print_error, print_note, print_result
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore import course, files
from lib_dlhpc.explore.server.visitors import add_host_option, tcp_port
from lib_dlhpc.lifetime import signals
from lib_dlhpc.lifetime.files import write_text

CONSENT = """\
Your answers, and which hints of labs you open, are written to {folder}{where}.
`dlhpc class forget` deletes them."""


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `class` to the command line."""
    page = subparsers.add_parser(
        "class", help="record learners' answers; serve a class and see its results"
    )
    verbs = page.add_subparsers(required=True, metavar="VERB")
    _add_learners(verbs)
    _add_teachers(verbs)


def _add_learners(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    join = verbs.add_parser(
        "join", help="learner: agree that your answers are recorded, on this machine or in a class"
    )
    join.add_argument(
        "server",
        nargs="?",
        default="",
        help="address of a class (default: the last one used, the one of the hub you are on, or none)",
    )
    join.add_argument(
        "--name", default="", help="the name by which the teacher knows you, such as your login"
    )
    add_output(join)
    join.set_defaults(command=_join)
    status = verbs.add_parser(
        "status", help="learner: show what is recorded, and what has not been sent yet"
    )
    add_output(status)
    status.set_defaults(command=_status)
    own = verbs.add_parser(
        "report", help="learner: show your guesses, first tries and labs, and what to review"
    )
    add_output(own)
    own.set_defaults(command=_report)
    send = verbs.add_parser(
        "send", help="learner: send the answers that the class does not have yet"
    )
    add_output(send)
    send.set_defaults(command=_send)
    forget = verbs.add_parser(
        "forget", help="delete all your answers; teacher: delete those of a learner"
    )
    forget.add_argument("learner", nargs="?", help="teacher: the id of a learner, as exported")
    _add_folder(forget)
    add_output(forget)
    forget.set_defaults(command=_forget)


def _add_teachers(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    serve = verbs.add_parser(
        "serve", help="teacher: serve the pages to a class, with a live board of the answers"
    )
    serve.add_argument(
        "page", nargs="?", help="a notebook or a folder of them (default: the course)"
    )
    _add_folder(serve)
    serve.add_argument(
        "--port", type=tcp_port, default=0, help="TCP port (default: the last one used)"
    )
    serve.add_argument(
        "--ip",
        default="127.0.0.1",
        help="address to listen on (default: this machine only; 0.0.0.0 admits the classroom)",
    )
    serve.add_argument(
        "--no-browser", action="store_true", help="print the addresses instead of opening a browser"
    )
    add_host_option(serve)
    serve.add_argument(
        "--hub",
        action="store_true",
        help="run as a service of a JupyterHub, which provides the users, the address to listen on and the path",
    )
    serve.set_defaults(command=_serve)
    collect = verbs.add_parser("collect", help="teacher: import the records in learners' folders")
    collect.add_argument(
        "source", type=Path, help="a folder; records in all its subfolders are read, too"
    )
    _add_folder(collect)
    add_output(collect)
    collect.set_defaults(command=_collect)
    export = verbs.add_parser(
        "export", help="teacher: write the answers or grades of a class to a file"
    )
    export.add_argument("out", type=Path, help="the file to write; it must not exist")
    form = export.add_mutually_exclusive_group(required=True)
    for name, help_ in grades.FORMS.items():
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=help_)
    export.add_argument(
        "--first-try",
        action="store_true",
        help="grades: add a second column for each module, with the number of checks that were right on the first try",
    )
    _add_folder(export)
    add_output(export)
    export.set_defaults(command=_export)


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--folder", type=Path, help=f"the class's folder (default: {_short(_class_folder())})"
    )


def _class_folder() -> Path:
    return learner.home().parent / "class"


def _short(path: Path) -> str:
    return f"~/{path.relative_to(Path.home())}" if path.is_relative_to(Path.home()) else str(path)


def _join(options: argparse.Namespace) -> int:
    before = learner.at_home()
    name = options.name or (before.name if before else "")
    server = options.server or (before.server if before else "") or sending.of_hub()
    token = before.token if before else ""
    if server and server == sending.of_hub():
        name, token = os.environ.get("JUPYTERHUB_USER", name), _account_token(server)
    elif options.server:
        _check_door(sending.checked_address(server), name, before)
    found = learner.join(learner.home(), name, server, token)
    if before and before.server != server:
        (found.folder / learner.SENT).unlink(missing_ok=True)  # another class has nothing yet
    where = (
        f" and sent to {server.partition('?')[0]}" if server else "; nothing leaves this machine"
    )
    sent = _deliver(found) if server else None
    lines = [CONSENT.format(folder=found.folder, where=where), *_said(sent)]
    print_result(options, _as_data(found) | {"sent": sent}, *lines)
    return 0


def _account_token(server: str) -> str:
    """Return the token of the learner's account on a hub. Raises SpecError if its class gives none."""
    try:
        return sending.account_token(server)
    except sending.AWAY as error:
        raise SpecError(
            f"{server}: the class of this hub does not let you join now ({error}); nothing is recorded."
        ) from None


def _check_door(server: str, name: str, before: learner.Learner | None) -> None:
    """Raise SpecError, before anything is written, where a class refuses its token; a class that is offline is fine."""
    asking = learner.Learner(before.token if before else "new", learner.home(), name, server)
    try:
        sending.check_door(asking)
    except SpecError:
        raise
    except sending.AWAY:
        pass  # delivering says so


def _status(options: argparse.Namespace) -> int:
    found = learner.at_home()
    if found is None:
        nothing = "You have not joined, so nothing is recorded. `dlhpc class join` starts a record."
        print_result(options, {"learner": None}, nothing)
        return 0
    count = len(record.entries(found.folder))
    who = f"learner {found.id}{f', {found.name}' if found.name else ''}"
    lines, data = (
        [f"{who}: {count} entries in {found.folder}"],
        _as_data(found) | {"entries": count},
    )
    if found.server:
        data["unsent"] = sending.unsent(found)
        lines.append(f"{data['unsent']} of them have not reached {data['class']} yet.")
    print_result(options, data, *lines)
    return 0


def _report(options: argparse.Namespace) -> int:
    found = learner.at_home()
    if found is None:
        raise SpecError("You have no record: `dlhpc class join` starts one.")
    made = report.report(record.entries(found.folder), course.title_of)
    print_result(options, made, *report.lines(made))
    return 0


def _as_data(found: learner.Learner) -> dict[str, Any]:
    server = found.server.partition("?")[0]  # without the token
    return {"learner": found.id, "name": found.name, "folder": str(found.folder), "class": server}


def _send(options: argparse.Namespace) -> int:
    found = learner.at_home()
    if found is None or not found.server:
        raise SpecError(
            "There is no class to send to: dlhpc class join http://host:8000/?token=..."
        )
    sent = _deliver(found)
    print_result(options, _as_data(found) | {"sent": sent}, *_said(sent))
    return 1 if sent is None else 0


def _said(sent: int | None) -> list[str]:
    return [] if sent is None else [f"{sent} entries sent."]


def _deliver(found: learner.Learner) -> int | None:
    """Send what the class does not have yet; return the number of entries, or None if it accepted none."""
    try:
        return sending.send(found)
    except HTTPError as error:
        wrong = (
            "its token is wrong: join with the new address"
            if error.code == sending.WRONG_TOKEN
            else f"{error}"
        )
        print_error(
            f"dlhpc: the class refuses your answers ({wrong}); they stay in {found.folder}."
        )
    except sending.AWAY as error:
        print_error(f"dlhpc: the class cannot take your answers now ({error}); nothing is lost.")
    return None


def _forget(options: argparse.Namespace) -> int:
    if options.learner:
        return _forget_member(options, _existing(options), options.learner)
    found = learner.at_home()
    if found is None:
        learner.forget(learner.home())
        print_result(options, {"deleted": None}, "Nothing is recorded.")
        return 0
    status = 0
    if found.server:
        try:
            sending.request(found, "forget", {})
        except sending.AWAY as error:
            status = 1
            print_error(
                f"dlhpc: the class could not be asked to delete its copy ({error}). Give your teacher this id:"
                f" {found.id}"
            )
    learner.forget(found.folder)
    print_result(options, {"deleted": str(found.folder)}, f"Deleted: {found.folder}")
    return status


def _forget_member(options: argparse.Namespace, folder: Path, who: str) -> int:
    known = database.names(folder / classes.DATABASE)
    if who not in known:
        raise SpecError(
            f"{who!r}: not a learner in {folder}; `dlhpc class export --csv` lists them."
        )
    learner.forget(folder / classes.LEARNERS / who)
    count = database.forget(folder / classes.DATABASE, who)
    refused = "Answers that this learner's machine sends from now on are rejected."
    print_result(
        options, {"deleted": who, "answers": count}, f"Deleted: {count} answers of {who}. {refused}"
    )
    return 0


def _serve(options: argparse.Namespace) -> int:
    from lib_dlhpc.explore.server.serve import serve

    page = Path(options.page) if options.page else files.folder() / "modules"
    if not page.exists():
        raise SpecError(f"{page}: no such notebook or folder.")
    folder = (options.folder or _class_folder()).resolve()
    where = _hub_place() if options.hub else None
    keys = classes.keys(folder)
    ip, port, base = where or (options.ip, options.port or keys.port, options.base_url)
    print_note(f"Starting the pages of the class in {_short(folder)} ...")
    try:
        serve(
            page,
            port,
            ip,
            not options.no_browser,
            token="" if options.hub else keys.token,
            allow_hosts=options.allow_host,
            classroom=folder,
            base=base,
            hub=options.hub,
        )
    except KeyboardInterrupt:
        if not signals.by_keys():
            raise
    return 0


def _hub_place() -> tuple[str, int, str]:
    from lib_dlhpc.explore.server.hub import place

    return place()


def _collect(options: argparse.Namespace) -> int:
    if not options.source.is_dir():
        raise SpecError(f"{options.source}: expected a folder.")
    folder = (options.folder or _class_folder()).resolve()
    classes.keys(folder)
    count = collecting.Collector(options.source, folder / classes.DATABASE).collect()
    print_result(options, {"new": count, "folder": str(folder)}, f"{count} new entries in {folder}")
    return 0


def _export(options: argparse.Namespace) -> int:
    if options.out.exists():
        raise SpecError(f"{options.out} exists: expected a new file.")
    file = _existing(options) / classes.DATABASE
    text, said = grades.export(file, options.form, course.title_of, options.first_try)
    write_text(options.out, text, mode=0o600)
    print_result(options, {"file": str(options.out), "content": said}, f"{options.out}: {said}")
    return 0


def _existing(options: argparse.Namespace) -> Path:
    folder: Path = (options.folder or _class_folder()).resolve()
    if not (folder / classes.DATABASE).exists():
        raise SpecError(f"{folder}: not the folder of a class; `dlhpc class serve` creates one.")
    return folder
