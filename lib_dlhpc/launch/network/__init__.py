"""A network laboratory: ranks of this machine behind links of a chosen bandwidth and latency. Linux only.

lab.py         network(ranks, bandwidth, latency): runs programs in it; available(): why it cannot be set up
keeper.py      the process that holds the laboratory, which ends with it
namespaces.py  private network namespaces, with a TUN device in each
switch.py      the switch in user space: when each packet arrives
enter.py       moves a program inside
crossover.py   allreduces in it: measured and predicted, and where algorithms cross
worker.py      the measurements of each rank
model.py       time of a schedule, from a ping-pong's latency, bandwidth and acknowledgement

The host's network is unchanged: no interface, address or rule is modified, and nothing remains.
"""

from lib_dlhpc.launch.network.lab import Network, NetworkError, available, network

__all__ = ["Network", "NetworkError", "available", "network"]
