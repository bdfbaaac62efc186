"""What a JupyterHub needs for a class. In your own jupyterhub_config.py, after its authenticator and spawner:

    load_subconfig("/path/of/dlhpc_hub.py")

The pages of the course and the teacher's board are a service of the hub, at /services/dlhpc/. Learners are known by the
names of their accounts; their JupyterLab, for the labs, reaches the same class. Change the values of the first block,
or set them in the environment of the hub.
"""

import os
import shutil
import sys

from jupyterhub.services.service import Service

setting = os.environ.get
# The folder of the class, and the system's user that serves the pages and owns it; empty: the hub's own user.
FOLDER = setting("DLHPC_HUB_FOLDER", "/srv/dlhpc/class")
USER = setting("DLHPC_HUB_USER", "")
# The port of the pages on this machine, and how learners' servers reach it. For a container 127.0.0.1 is itself, and on
# a machine that learners share anyone may listen on a port while the service is down: give the hub's public address.
PORT = int(setting("DLHPC_HUB_PORT", "8765"))
HOST = setting("DLHPC_HUB_HOST", f"http://127.0.0.1:{PORT}")
DLHPC = setting("DLHPC_HUB_COMMAND") or shutil.which("dlhpc", path=os.path.dirname(sys.executable))
TEACHERS = setting("DLHPC_HUB_TEACHERS", "").split()  # accounts that see the board

if not DLHPC:
    raise SystemExit("dlhpc is not installed beside this hub: set DLHPC_HUB_COMMAND to its path.")

c = get_config()  # noqa: F821, the hub defines it
ACCESS = "access:services!service=dlhpc"

service = {
    "name": "dlhpc",
    "url": f"http://127.0.0.1:{PORT}",
    "command": [DLHPC, "class", "serve", "--hub", "--no-browser", "--folder", FOLDER],
    "oauth_no_confirm": True,  # no question whether the pages may know the learner's name
}
if USER:
    service["user"] = USER
# A hub ends where a service of its own does not come up in time, and the first start draws the pages.
if hasattr(Service, "timeout"):  # from JupyterHub 6 on
    service["timeout"] = 300  # s
c.JupyterHub.services.append(service)

# Everyone on this hub may open the pages, in a browser and from their JupyterLab.
c.JupyterHub.load_roles.extend(
    [
        {"name": "user", "scopes": ["self", ACCESS]},
        {"name": "server", "scopes": ["users:activity!user", "access:servers!server", ACCESS]},
    ]
)
# An authenticator that manages groups itself refuses any from here: make dlhpc-teachers there.
if TEACHERS:
    c.JupyterHub.load_groups.update({"dlhpc-teachers": {"users": TEACHERS}})


def address(spawner):
    """Return the address of the class for a learner's JupyterLab, by which `dlhpc class join` finds it."""
    return f"{HOST}{spawner.hub.base_url.removesuffix('hub/')}services/dlhpc/"


c.Spawner.environment.update({"DLHPC_CLASS_SERVER": address})
