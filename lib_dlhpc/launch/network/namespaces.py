"""Private network namespaces of this process, with a TUN device in each, whose other end is a file.

Linux only. A namespace and its device exist as long as a process or an open file refers to them: nothing has a name in
the file system, so nothing can remain. Sources: namespaces(7), user_namespaces(7),
netdevice(7); Documentation/networking/tuntap.rst of the Linux kernel.
"""

import fcntl
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

from lib_dlhpc.launch.network.enter import NEW_NET, NEW_PID, NEW_USER, system
from lib_dlhpc.launch.network.lab import TUN

CARD = "net0"
SET_TUN, IP_PACKETS, NO_HEADER = 0x400454CA, 0x0001, 0x1000  # TUNSETIFF, IFF_TUN, IFF_NO_PI
SET_ADDRESS, SET_MASK, SET_MTU, SET_QUEUE = 0x8916, 0x891C, 0x8922, 0x8943
GET_FLAGS, SET_FLAGS, UP = 0x8913, 0x8914, 0x1
QUEUE = 10_000  # largest number of packets waiting for the switch
SETTINGS = {  # of a network namespace: disable what makes times depend on earlier traffic
    "ipv6/conf/all/disable_ipv6": "1",
    "ipv6/conf/default/disable_ipv6": "1",
    "ipv4/tcp_slow_start_after_idle": "0",
    "ipv4/tcp_no_metrics_save": "1",
    "ipv4/tcp_congestion_control": "reno",  # others adapt to earlier traffic
    "ipv4/tcp_early_retrans": "0",  # there is no packet loss here
    "ipv4/tcp_rmem": "4096 1048576 8388608",  # B: least, first and largest buffer of a connection
    "ipv4/tcp_wmem": "4096 1048576 8388608",
}


def leave() -> None:
    """Move this process into a private network namespace, and its children into a PID namespace.

    Without root privileges, a user namespace grants them first. Raises OSError; RuntimeError if the process has
    several threads.
    """
    try:
        system("unshare", NEW_NET | NEW_PID)
    except PermissionError:
        user, group = os.geteuid(), os.getegid()
        system("unshare", NEW_USER | NEW_NET | NEW_PID)
        with suppress(OSError):
            Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def new_network() -> int:
    """Move this process into a new network namespace; return a descriptor that holds it. Raises OSError."""
    system("unshare", NEW_NET)
    for name, value in SETTINGS.items():
        with suppress(OSError):  # missing on old kernels, read-only in containers
            Path("/proc/sys/net", name).write_text(value)
    up("lo")
    return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def card(address: str, mtu: int) -> int:
    """Create a TUN device in this process's network; return its file descriptor. Raises OSError.

    address: IPv4, in a network of 256. mtu: B, the largest packet. Each read returns one sent packet, each write
    delivers one packet.
    """
    cable = os.open(TUN, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    fcntl.ioctl(cable, SET_TUN, struct.pack("16sH22x", CARD.encode(), IP_PACKETS | NO_HEADER))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_:
        for request, text in ((SET_ADDRESS, address), (SET_MASK, "255.255.255.0")):
            place = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(text))
            fcntl.ioctl(any_, request, struct.pack("16s16s8x", CARD.encode(), place))
        fcntl.ioctl(any_, SET_MTU, struct.pack("16si20x", CARD.encode(), mtu))
        with suppress(PermissionError):  # requires root of the host; default 500
            fcntl.ioctl(any_, SET_QUEUE, struct.pack("16si20x", CARD.encode(), QUEUE))
    up(CARD)
    return cable


def up(name: str) -> None:
    """Bring an interface up. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_:
        now = fcntl.ioctl(any_, GET_FLAGS, struct.pack("16sH22x", name.encode(), 0))
        flags = struct.unpack_from("H", now, 16)[0] | UP
        fcntl.ioctl(any_, SET_FLAGS, struct.pack("16sH22x", name.encode(), flags))
