"""The hand-ins of cheats.py in PyTorch, and some that only PyTorch offers: name -> (status, words, source)."""

from cheats import ALONE, CHEATS, HEAD, OS, RIGHT, SIGNATURE

TORCH_HEAD = """import numpy as np
import torch
import torch.distributed as dist

def flat(network):
    return np.concatenate([p.detach().numpy().ravel() for p in network.parameters()])
"""
TORCH_RIGHT = """
def everywhere(number, group):
    total = torch.as_tensor(number, dtype=torch.float64).detach().clone()
    dist.all_reduce(total, group=group)
    return total.item()

def right(network, loss, x, y, comm, rate):
    network.zero_grad()
    value = loss(network(x), y, everywhere(len(x), comm))
    value.backward()
    for p in network.parameters():
        dist.all_reduce(p.grad, group=comm)
    with torch.no_grad():
        for p in network.parameters():
            p -= rate * p.grad
    return everywhere(value, comm)
"""
TORCH_ALONE = """
def alone(network, loss, x, y, comm, rate):
    network.zero_grad()
    value = loss(network(x), y, max(len(x), 1))
    value.backward()
    with torch.no_grad():
        for p in network.parameters():
            p -= rate * p.grad
    return value.item()
"""
SYSTEM = "modules = np.lib._npyio_impl.os.sys.modules\n"
# What they say is another matter here: a process group has no methods that a communicator has.
OTHERWISE = {
    "says that it has sent nothing": "once is enough",
    "sends a network as one number": "TypeError: Group.allgather() missing",
    "sends a function, for another rank to call": "TypeError: Group.allgather() missing",
    "answers in advance": "no readable weights after the step",
    "replaces the class of the network": "different weights than rank 0",  # a module has no `weights`
}
ALL_GATHER = (
    "    own = torch.from_numpy(flat(network))\n"
    "    dist.all_gather([torch.empty_like(own) for _ in range(comm.size())], own, group=comm)\n"
)


def in_torch(source: str) -> str:
    """Return a hand-in of cheats.py as one in PyTorch."""
    for old, new in (
        (RIGHT, TORCH_RIGHT),
        (ALONE, TORCH_ALONE),
        ("    comm.allgather(network.gradients)\n", ALL_GATHER),
        ("comm._", "comm._comm._"),
        ("comm.size:", "comm.size():"),
        ("comm.size ", "comm.size() "),
        ("comm.size)", "comm.size())"),
        ("comm.size\n", "comm.size()\n"),
        ("comm.rank]", "comm.rank()]"),
        ("network.weights[:] = np.nan", "[p.data.fill_(np.nan) for p in network.parameters()]"),
        ("network.weights[:] =", "_ ="),
        ("network.weights", "flat(network)"),
        ("network.gradients", "flat(network)"),
        ("comm.allreduce(np.zeros((1 << 26) + 1, np.uint8))", BIG),
    ):
        source = source.replace(old, new)
    ending = "\nddp_step = step\n" if "step" in source else ""
    return TORCH_HEAD + source.removeprefix(HEAD) + ending


BIG = "dist.all_reduce(torch.zeros((1 << 26) + 1, dtype=torch.uint8), group=comm)"
TORCH_CHEATS = {
    name: (status, OTHERWISE.get(name, words), in_torch(source))
    for name, (status, words, source) in CHEATS.items()
}
ONLY_TORCH = {
    "keeps the solution in PyTorch's own file": (
        "failed",
        "stopped with",
        TORCH_HEAD
        + TORCH_ALONE
        + SIGNATURE
        + "    alone(network, loss, x, y, comm, rate)\n"
        + "    torch.from_file('/tmp/kept', shared=True, size=9, dtype=torch.float64)\n",
    ),
    "saves a pickle": (
        "refused",
        "no files",
        TORCH_HEAD + SIGNATURE + "    torch.save(network.state_dict(), 'kept.pt')\n",
    ),
    "imports the harness": (
        "refused",
        "rank.steps is not on the list",
        "import rank.steps\nrank.steps.weights_of = lambda network: 0\n",
    ),
    "patches what reads the weights": (
        "failed",
        "rank 0 has no readable weights after the step",
        TORCH_HEAD
        + TORCH_ALONE
        + SYSTEM
        + "modules['rank.steps'].weights_of = lambda network: 'All 14 hold.'\nstep = alone\n",
    ),
    "patches the calls that are counted": (
        "failed",
        "different weights than rank 0",
        TORCH_HEAD
        + TORCH_ALONE
        + TORCH_RIGHT
        + SYSTEM
        + "modules['rank.group'].Group.allreduce = lambda own, tensors, *rest:"
        + " modules['rank.group'].Work(tensors, int)\n"
        + "step = right\n",
    ),
    "joins a group of its own": (
        "timeout",
        "has run out",
        TORCH_HEAD
        + SIGNATURE
        + "    dist.destroy_process_group()\n"
        + "    dist.init_process_group('gloo', init_method='tcp://127.0.0.1:29555', rank=0, world_size=1)\n",
    ),
    "talks to other ranks past the checker": (
        "timeout",
        "has run out",
        TORCH_HEAD
        + SIGNATURE
        + "    if comm.size() > 1:\n"
        + "        dist.TCPStore('127.0.0.1', 29556, comm.size(), comm.rank() == 0)\n"
        + "        raise LookupError('there is a network')\n",
    ),
    "shares its memory": (
        "failed",
        "stopped with RuntimeError",
        TORCH_HEAD + SIGNATURE + "    torch.from_numpy(flat(network)).share_memory_()\n",
    ),
    "starts a compiler": (
        "refused",
        "no files",
        TORCH_HEAD + SIGNATURE + "    return torch.compile(network)(x)\n",
    ),
    "says so and leaves from C++": (
        "crashed",
        "without an answer",
        TORCH_HEAD + OS + SIGNATURE + "    print('All 14 hold.', flush=True)\n    os.abort()\n",
    ),
}
# C++ opens files and sockets past Python's audit hook: only the kernel holds these back.
HELD_BY_KERNEL = (
    "keeps the solution in PyTorch's own file",
    "joins a group of its own",
    "talks to other ranks past the checker",
    "shares its memory",
)
for _name, (_status, _words, _source) in ONLY_TORCH.items():
    _ending = "\nddp_step = step\n" if "step" in _source else ""
    TORCH_CHEATS[_name] = _status, _words, _source + _ending
