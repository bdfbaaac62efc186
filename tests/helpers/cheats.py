"""Hand-ins of lab 1 that want marks without a data-parallel step: name -> (status, words of its note, source)."""

HEAD = "import numpy as np\n"
# A correct step; a cheat that calls it gains nothing, so what it tries besides has to fail by itself.
RIGHT = """
def right(network, loss, x, y, comm, rate):
    samples = comm.allreduce(len(x))
    value, dy = loss(network.forward(x), y, samples)
    network.backward(dy)
    total = np.empty_like(network.gradients)
    comm.Allreduce(network.gradients, total)
    network.weights -= rate * total
    return comm.allreduce(value)
"""
ALONE = """
def alone(network, loss, x, y, comm, rate):
    value, dy = loss(network.forward(x), y, max(len(x), 1))
    network.backward(dy)
    network.weights -= rate * network.gradients
    return value
"""
SIGNATURE = "def step(network, loss, x, y, comm, rate):\n"
# The way around the list of imports: a module that numpy has imported.
OS = "os = np.lib._npyio_impl.os\n"
FRAMES = """
    try:
        raise ValueError
    except ValueError as error:
        frame = error.__traceback__.tb_frame
    names = set()
    while frame:
        names |= set(frame.f_locals) | set(frame.f_globals)
        frame = frame.f_back
"""

CHEATS = {
    "says so and leaves": (
        "refused",
        "os is not on the list",
        'import os\nprint("All 7 hold.")\nos._exit(0)\n',
    ),
    "says so and leaves, by another way": (
        "crashed",
        "ended with status 0, without an answer. It printed: All 7 hold.",
        HEAD + OS + 'print("All 7 hold.")\nos._exit(0)\n',
    ),
    "says so and leaves in a step": (
        "crashed",
        "It printed: ✓ One rank alone",
        HEAD + OS + SIGNATURE + '    print("✓ One rank alone", flush=True)\n    os._exit(0)\n',
    ),
    "raises SystemExit": (
        "failed",
        "stopped with SystemExit",
        SIGNATURE + "    raise SystemExit(0)\n",
    ),
    "reads the caller's frames": (
        "failed",
        "LookupError: no answers",
        SIGNATURE
        + FRAMES
        + "    if not names & {'expected', 'task', 'checks', 'one_rank', 'findings', 'emulated', 'own_rank'}:\n"
        + "        raise LookupError('no answers')\n",
    ),
    "imports __main__": (
        "refused",
        "__main__ is not",
        "import __main__\n__main__.passed = lambda found: True\n",
    ),
    "patches __main__": (
        "failed",
        "different weights than rank 0",
        HEAD
        + ALONE
        + "modules = np.lib._npyio_impl.os.sys.modules\n"
        + "modules['__main__'].passed = modules['__main__'].off = lambda *given: 0\n"
        + "step = alone\n",
    ),
    "patches numpy": (
        "failed",
        "different weights than rank 0",
        HEAD
        + ALONE
        + "np.max = np.abs = np.vdot = lambda *given, **named: 0.0\n"
        + "np.array_equal = np.allclose = lambda *given, **named: True\nstep = alone\n",
    ),
    "keeps the solution of one rank": (
        "failed",
        "LookupError: nothing was kept",
        HEAD
        + ALONE
        + "kept = []\n"
        + SIGNATURE
        + "    if comm.size == 1:\n        value = alone(network, loss, x, y, comm, rate)\n"
        + "        kept.append(network.weights.copy())\n        return value\n"
        + "    if not kept:\n        raise LookupError('nothing was kept')\n",
    ),
    "keeps it in a file": (
        "refused",
        "no files",
        HEAD
        + ALONE
        + SIGNATURE
        + "    alone(network, loss, x, y, comm, rate)\n    np.save('kept.npy', network.weights)\n",
    ),
    "reads the memory of other ranks": (
        "failed",
        "KeyError",
        HEAD
        + ALONE
        + "shelf = {}\n"
        + SIGNATURE
        + "    alone(network, loss, x, y, comm, rate)\n    shelf[comm.rank] = network.weights.copy()\n"
        + "    comm.barrier()\n    network.weights[:] = sum(shelf[r] for r in range(comm.size)) / comm.size\n",
    ),
    "says that it has sent nothing": (
        "failed",
        "once is enough",
        HEAD
        + RIGHT
        + SIGNATURE
        + "    comm.allgather(network.gradients)\n    value = right(network, loss, x, y, comm, rate)\n"
        + "    comm.moved = 0\n    return value\n",
    ),
    "sets its count of bytes where it is kept": (
        "failed",
        "AttributeError: comm has no spend",
        SIGNATURE + "    comm._session.do(comm._number, 'spend', (-1.0,), {})\n",
    ),
    "reads what of the checker is no offer": (
        "failed",
        "AttributeError: comm has no __dict__",
        SIGNATURE + "    comm._session.do(comm._number, '__dict__', None, None)\n",
    ),
    "sends a network as one number": (
        "failed",
        "TypeError: messages may contain numbers",
        SIGNATURE + "    return comm.allgather([{'mine': network}])\n",
    ),
    "sends a function, for another rank to call": (
        "failed",
        "TypeError: messages may contain numbers",
        SIGNATURE + "    return comm.allgather(lambda: network.weights)\n",
    ),
    "writes what is no message": (
        "crashed",
        "sent something that is not an answer",
        SIGNATURE + "    comm._session._sock.sendall(b'All 7 hold. ' * 100)\n    return 0.0\n",
    ),
    "answers in advance": (
        "failed",
        "did not change",
        SIGNATURE + "    for _ in range(3):\n        comm._session._send('return', 0.0)\n",
    ),
    "returns what equals everything": (
        "failed",
        "was returned where the mean",
        HEAD
        + RIGHT
        + "class Equal(float):\n    __sub__ = __rsub__ = lambda *given: 0.0\n    __eq__ = lambda *given: True\n"
        + SIGNATURE
        + "    right(network, loss, x, y, comm, rate)\n    return Equal(0)\n",
    ),
    "trains to nan, which is beyond no tolerance": (
        "failed",
        "no longer numbers",
        HEAD + SIGNATURE + "    network.weights[:] = np.nan\n    return float('nan')\n",
    ),
    "patches what is built in": (
        "crashed",
        "sent something that is not an answer",
        HEAD
        + ALONE
        + "known = __builtins__ if isinstance(__builtins__, dict) else vars(__builtins__)\n"
        + "known['abs'] = known['max'] = known['sum'] = lambda *given, **named: 0.0\n"
        + "known['all'] = known['isinstance'] = lambda *given: True\nstep = alone\n",
    ),
    "replaces the class of the network": (
        "failed",
        "could not be broadcast",
        HEAD
        + ALONE
        + SIGNATURE
        + "    value = alone(network, loss, x, y, comm, rate)\n    type(comm).rank = 0\n"
        + "    type(network).weights = property(lambda own: np.zeros(3))\n    return value\n",
    ),
    "reads the checks": (
        "refused",
        "no files",
        SIGNATURE + "    return open('checks.py').read()\n",
    ),
    "imports the checks": (
        "failed",
        "cannot import",
        HEAD
        + SIGNATURE
        + "    sys = np.lib._npyio_impl.os.sys\n    sys.path.append('HERE')\n"
        + "    try:\n        np.lib._npyio_impl.os.sys.modules['importlib'].import_module('lib_dlhpc.labs.program')\n"
        + "    except Exception as error:\n        raise RuntimeError('cannot import') from error\n",
    ),
    "opens a socket": (
        "refused",
        "socket.__new__",
        HEAD
        + SIGNATURE
        + "    sys = np.lib._npyio_impl.os.sys\n    return sys.modules['socket'].socket()\n",
    ),
    "starts a process": ("refused", "os.fork", HEAD + OS + SIGNATURE + "    return os.fork()\n"),
    "ends the checker": (
        "refused",
        "os.kill",
        HEAD + OS + SIGNATURE + "    os.kill(os.getppid(), 9)\n",
    ),
    "loads a library of C": (
        "refused",
        "ctypes",
        HEAD + SIGNATURE + "    return np.ctypeslib.ctypes.CDLL(None).getpid()\n",
    ),
    "takes all memory": ("failed", "MemoryError", SIGNATURE + "    return bytearray(1 << 40)\n"),
    "fills the disk": (
        "failed",
        "OSError",
        SIGNATURE + "    while True:\n        print('x' * 100_000)\n",
    ),
    "sends more than a message holds": (
        "failed",
        "are allowed",
        HEAD + SIGNATURE + "    return comm.allreduce(np.zeros((1 << 26) + 1, np.uint8))\n",
    ),
    "nests what it returns": (
        "failed",
        "RecursionError",
        SIGNATURE
        + "    found = []\n    for _ in range(100_000):\n        found = [found]\n    return found\n",
    ),
    "computes without end": (
        "timeout",
        "The time for this hand-in has run out",
        SIGNATURE + "    while True:\n        pass\n",
    ),
    "sleeps while it is loaded": ("timeout", "has run out", "import time\ntime.sleep(1e6)\n"),
    "catches the errors of the checker": (
        "timeout",
        "has run out",
        SIGNATURE
        + "    while True:\n        try:\n            comm.Alltoall(0)\n"
        + "        except BaseException:\n            pass\n",
    ),
}
