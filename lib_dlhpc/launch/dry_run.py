"""The scripts of a job as they would be submitted; nothing is submitted, and no run folder is made."""

import os
import re
import shlex
from pathlib import Path

from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch import schedulers
from lib_dlhpc.launch.jobs import WORK
from lib_dlhpc.launch.limits import check_limits
from lib_dlhpc.launch.site import Site, read_time
from lib_dlhpc.launch.submit import (
    SCRIPT,
    check_path,
    command_of,
    program,
    script_lines,
    settle_site,
)
from lib_dlhpc.lifetime import owned

NAME = "dlhpc-job"  # in place of the random name of a job and of its folder
TOKEN = "0" * 8  # in place of a random one


def scripts(
    ranks: int,
    to: str | None = None,
    site: Site | None = None,
    folder: str | Path | None = None,
    time_limit: float | str | None = None,
) -> dict[str, str]:
    """Return the scripts by name: that of the batch system, with its directives, and the one that it starts.

    Arguments are those of `submit`. The batch system need not be here. Raises SpecError for an illegal request.
    """
    site = settle_site(to, site)
    if ranks < 1:
        raise SpecError(f"ranks = {ranks}: expected a whole number, at least 1.")
    limit = site.time_limit if time_limit is None else read_time(time_limit, "time limit")
    run = Path(os.path.abspath(folder or NAME))
    first = script_lines(site, [], shlex.join([*program(site), str(run), TOKEN]))
    found = {SCRIPT: first}
    if site.scheduler != "local":
        check_path(run)
        limit = schedulers.DEFAULT_LIMIT if limit is None else limit
        check_limits(site, ranks, limit)
        with owned.temporary_folder("dlhpc-dry-") as work:
            words = command_of(site, run / WORK / SCRIPT)
            text = schedulers.job_script(site, ranks, limit, NAME, words, work)
        text = re.sub(r"\n\s*\n+", "\n", text.replace(str(work), str(run / WORK)))
        found = {f"job for {site.scheduler}": text, **found}
    return found
