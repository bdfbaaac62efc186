"""Play message programs in SimGrid (S4U) and print when each ends: how golden.json was made.

    /usr/bin/python3 make_golden.py > golden.json          Debian's python3-simgrid, 3.32
    /usr/bin/python3 make_golden.py NAME ...               only these cases

A case is a platform and a program: rounds of messages (source, target, bytes). A rank sends its messages
of a round one after another, each when its receiver has come to the round; it goes on when these are
sent and those for it have arrived. Links have one direction each; a flow's
latency is all on the NIC it leaves by. Nothing of lib_dlhpc is used here.
"""

import json
import subprocess
import sys

ALPHA, BANDWIDTH, SIZE = 1e-6, 12.5e9, 64 * 2**20  # s, B/s, B
FLAGS = ["network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0"]


def ring(p, size):
    """2 (p-1) rounds, each of a block to the right."""
    return [[(r, (r + 1) % p, size / p) for r in range(p)]] * (2 * (p - 1))


def recursive_doubling(p, size):
    """lg p rounds, everything to the partner 1, 2, 4 ... away."""
    return [[(r, r ^ 2**k, size) for r in range(p)] for k in range((p - 1).bit_length())]


def halving_doubling(p, size):
    """Rabenseifner: halves, quarters ... with the partner 1, 2, 4 ... away, and back."""
    steps = [(2**k, size / 2 ** (k + 1)) for k in range((p - 1).bit_length())]
    return [[(r, r ^ d, part) for r in range(p)] for d, part in steps + steps[::-1]]


def incast(senders, size):
    """Everyone to rank 0."""
    return [[(r, 0, size) for r in range(1, senders + 1)]]


def everyone(p, size):
    """A block to everyone at once: p - 1 messages, in rank order, so that all begin with rank 0."""
    return [[(r, t, size / p) for r in range(p) for t in range(p) if t != r]]


def staggered(p, size):
    """Messages of all sizes between all ranks, none in step."""
    return [
        [
            (r, (r * (k + 2) + k + 1) % p, size * (1 + (r * 7 + k * 3) % 11) / 11)
            for r in range(p)
            if (r * (k + 2) + k + 1) % p != r
        ]
        for k in range(6)
    ]


def case(program, nodes, node_size=1, **tree):
    """A program on nodes with one NIC each; tree: nodes_per_switch and oversubscription."""
    return {"nodes": nodes, "node_size": node_size, **tree, "rounds": program}


TREE = {"nodes_per_switch": 4, "oversubscription": 4.0}
CASES = {
    **{f"ring {p}": case(ring(p, SIZE), p) for p in (4, 16, 64, 256)},
    **{f"recursive doubling {p}": case(recursive_doubling(p, SIZE), p) for p in (4, 16, 64, 256)},
    "incast 8 to 1": case(incast(8, SIZE), 9),
    "recursive doubling 4 nodes of 4": case(recursive_doubling(16, SIZE), 4, 4),
    "fat tree ring 16": case(ring(16, SIZE), 16, **TREE),
    "fat tree recursive doubling 16": case(recursive_doubling(16, SIZE), 16, **TREE),
    "fat tree halving-doubling 16": case(halving_doubling(16, SIZE), 16, **TREE),
    "fat tree everyone 16": case(everyone(16, SIZE), 16, **TREE),
    "fat tree incast 8 to 1": case(incast(8, SIZE), 9, **TREE),
    "fat tree staggered 16": case(staggered(16, SIZE), 16, **TREE),
    "everyone 8": case(everyone(8, SIZE), 8),
    "everyone 16": case(everyone(16, SIZE), 16),
    "staggered 16": case(staggered(16, SIZE), 16),
    "staggered 8 nodes of 2": case(staggered(16, SIZE), 8, 2),
}


def build(root, p, node_size, nodes_per_switch=0, oversubscription=1.0, inside=None):
    """Hosts, links and all routes; node_size ranks share a NIC, inside a node a crossbar 8 times as fast."""
    from simgrid import LinkInRoute

    def link(name, bandwidth, latency=0.0):
        return LinkInRoute(root.create_link(name, bandwidth).set_latency(latency).seal())

    nodes = p // node_size
    hosts = [root.create_host(f"rank {r}", 1e9) for r in range(p)]
    out = [link(f"out {n}", BANDWIDTH, ALPHA) for n in range(nodes)]
    into = [link(f"in {n}", BANDWIDTH) for n in range(nodes)]
    device_out = [link(f"device out {r}", 8 * BANDWIDTH, ALPHA) for r in range(p)]
    device_in = [link(f"device in {r}", 8 * BANDWIDTH) for r in range(p)]
    if nodes_per_switch:
        uplinks = BANDWIDTH * nodes_per_switch / oversubscription
        leaves = range(-(-nodes // nodes_per_switch))
        up = [link(f"up {leaf}", uplinks) for leaf in leaves]
        down = [link(f"down {leaf}", uplinks) for leaf in leaves]
    for a in range(p):
        for b in range(p):
            if a == b:
                continue
            m, n = a // node_size, b // node_size
            route = [out[m], into[n]]
            if m == n:
                route = [device_out[a], device_in[b]]
            elif nodes_per_switch and m // nodes_per_switch != n // nodes_per_switch:
                route = [out[m], up[m // nodes_per_switch], down[n // nodes_per_switch], into[n]]
            root.add_route(hosts[a].netpoint, hosts[b].netpoint, None, None, route, False)
    root.seal()
    return hosts


def sort(messages):
    """A round by rank: (row, size) of what each sends, rows of what each receives."""
    going, coming = {}, {}
    for row, (source, target, size) in enumerate(messages):
        going.setdefault(source, []).append((row, size))
        coming.setdefault(target, []).append(row)
    return going, coming


def play(name):
    """Return when each rank is through with a case, in s. SimGrid plays once a process."""
    from simgrid import Actor, Engine, Mailbox, NetZone

    todo = CASES[name]
    engine = Engine(["golden", *(f"--cfg={flag}" for flag in FLAGS), "--log=root.thres:critical"])
    p = todo["nodes"] * todo["node_size"]
    tree = {key: todo[key] for key in ("nodes_per_switch", "oversubscription") if key in todo}
    hosts = build(NetZone.create_full_zone("all"), p, todo["node_size"], **tree)
    ends = [0.0] * p

    def box(number, row):
        return Mailbox.by_name(f"{number}.{row}")

    rounds = [sort(messages) for messages in todo["rounds"]]

    def rank(me):
        for number, (going, coming) in enumerate(rounds):
            expected = [box(number, row).get_async() for row in coming.get(me, [])]
            for row, size in going.get(me, []):
                box(number, row).put(1, round(size))
            for comm, _ in expected:
                comm.wait()
        ends[me] = engine.clock

    for me in range(p):
        Actor.create(f"rank {me}", hosts[me], rank, me)
    engine.run()
    return ends


def main(names):
    if len(names) == 1:
        print(json.dumps(play(names[0])))
        return
    golden = {}
    for name in names or CASES:
        run = [sys.executable, __file__, name]
        golden[name] = json.loads(subprocess.run(run, check=True, capture_output=True).stdout)
    print(json.dumps(golden, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
