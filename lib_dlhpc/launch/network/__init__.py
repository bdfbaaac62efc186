"""A network laboratory: ranks of this machine behind links of a chosen bandwidth and latency. Linux only.

lab.py         network(ranks, bandwidth, latency): programs run in it; available() says why not
keeper.py      the process that has it all, and takes it along when it ends
namespaces.py  private networks, a network card in each
switch.py      what each link carries, and when it arrives
enter.py       moves a program inside
crossover.py   allreduces in it: measured beside predicted, and where they cross
worker.py      what the ranks measure
model.py       what a schedule takes there, from a ping-pong's latency, bandwidth and acknowledgement

Nothing outside is touched: no interface, address or rule of this machine changes, and nothing stays.
"""

from lib_dlhpc.launch.network.lab import Network, NetworkError, available, network

__all__ = ["Network", "NetworkError", "available", "network"]
