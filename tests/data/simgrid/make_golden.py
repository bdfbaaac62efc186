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
# Full: all rates at every change. With 3.32's lazy updates, one case here ends 0.03 % early on two ranks.
FLAGS = [
    "network/model:CM02",
    "network/TCP-gamma:0",
    "network/crosstraffic:0",
    "network/optim:Full",
]


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


NETWORK = ("topology", "nodes_per_switch", "oversubscription")


def case(program, nodes, node_size=1, **network):
    """A program on nodes with one NIC each; network: topology, nodes_per_switch and oversubscription."""
    return {"nodes": nodes, "node_size": node_size, **network, "rounds": program}


TREE = {"topology": "fat-tree", "nodes_per_switch": 4, "oversubscription": 4.0}
DRAGONFLY = {"topology": "dragonfly", "nodes_per_switch": 4, "oversubscription": 1.5}
RAILS = {"topology": "rails", "nodes_per_switch": 2, "oversubscription": 4.0}
PXN = {**RAILS, "topology": "rails-pxn"}
TORUS = {"topology": "torus"}  # 16 nodes: 4 x 4; 12: 3 rows of 4
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
    **{
        f"{name} {program.__name__} {p}": case(program(p, SIZE), p, **network)
        for name, network in (("dragonfly", DRAGONFLY), ("torus", TORUS))
        for p, program in ((16, ring), (16, halving_doubling), (16, everyone), (12, staggered))
    },
    "dragonfly staggered 8 nodes of 2": case(staggered(16, SIZE), 8, 2, **DRAGONFLY),
    **{
        f"rails {program.__name__} 4 nodes of 4": case(program(16, SIZE), 4, 4, **RAILS)
        for program in (ring, halving_doubling, everyone, staggered)
    },
    # Relayed flows have two latencies, and SimGrid weighs by them: here they meet no others.
    "rails-pxn ring 4 nodes of 4": case(ring(16, SIZE), 4, 4, **PXN),
}


def build(root, p, node_size, topology="single-switch", **tree):
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
    if topology.startswith("rails"):
        devices = (device_out, device_in)
        rails(root, hosts, link, devices, node_size, topology == "rails-pxn", **tree)
        root.seal()
        return hosts
    between = {"fat-tree": fat_tree, "dragonfly": dragonfly, "torus": torus}.get(topology)
    path = between(link, nodes, **tree) if between else lambda m, n: []
    for a in range(p):
        for b in range(p):
            if a == b:
                continue
            m, n = a // node_size, b // node_size
            route = [device_out[a], device_in[b]] if m == n else [out[m], *path(m, n), into[n]]
            root.add_route(hosts[a].netpoint, hosts[b].netpoint, None, None, route, False)
    root.seal()
    return hosts


def fat_tree(link, nodes, nodes_per_switch, oversubscription):
    """Leaves with one link up and one down each; nothing blocks above."""
    uplinks = BANDWIDTH * nodes_per_switch / oversubscription
    leaves = range(-(-nodes // nodes_per_switch))
    up = [link(f"up {leaf}", uplinks) for leaf in leaves]
    down = [link(f"down {leaf}", uplinks) for leaf in leaves]

    def path(m, n):
        m, n = m // nodes_per_switch, n // nodes_per_switch
        return [] if m == n else [up[m], down[n]]

    return path


def rails(root, hosts, link, devices, node_size, pxn, nodes_per_switch, oversubscription):
    """A NIC a rank; NICs of one index in a node hang on the leaves of one rail, or a relay in the node reaches it."""
    (device_out, device_in), p = devices, len(hosts)
    out = [link(f"NIC out {r}", BANDWIDTH, ALPHA) for r in range(p)]
    into = [link(f"NIC in {r}", BANDWIDTH) for r in range(p)]
    leaf = [(r // node_size // nodes_per_switch, r % node_size) for r in range(p)]
    uplinks = BANDWIDTH * nodes_per_switch / oversubscription
    up = {at: link(f"up {at}", uplinks) for at in set(leaf)}
    down = {at: link(f"down {at}", uplinks) for at in set(leaf)}
    for a in range(p):
        for b in range(p):
            if a == b:
                continue
            first = a // node_size * node_size + b % node_size if pxn else a
            above = [up[leaf[first]], down[leaf[b]]] if leaf[first] != leaf[b] else []
            inside = [device_out[a], device_in[first]] if first != a else []
            route = [*inside, out[first], *above, into[b]]
            if a // node_size == b // node_size:
                route = [device_out[a], device_in[b]]
            root.add_route(hosts[a].netpoint, hosts[b].netpoint, None, None, route, False)


def dragonfly(link, nodes, nodes_per_switch, oversubscription):
    """Groups with one link each way to every other; all of a group's links carry what its nodes send / o."""
    groups = range(-(-nodes // nodes_per_switch))
    each = BANDWIDTH * nodes_per_switch / oversubscription / (len(groups) - 1)
    links = {(a, b): link(f"global {a} {b}", each) for a in groups for b in groups if a != b}

    def path(m, n):
        m, n = m // nodes_per_switch, n // nodes_per_switch
        return [] if m == n else [links[m, n]]

    return path


def torus(link, nodes):
    """Rows of 4; a link from each node to each of four neighbors; along the row first, the short way, + in a tie."""
    columns, rows = 4, nodes // 4
    ways = ((0, 1), (0, -1), (1, 0), (-1, 0))
    links = {(n, way): link(f"node {n} {way}", BANDWIDTH) for n in range(nodes) for way in ways}

    def walk(at, to, size):
        ahead = (to - at) % size
        return [1] * ahead if 2 * ahead <= size else [-1] * (size - ahead)

    def path(m, n):
        (row, column), (to_row, to_column) = divmod(m, columns), divmod(n, columns)
        hops = []
        for step in walk(column, to_column, columns):
            hops.append(links[row * columns + column, (0, step)])
            column = (column + step) % columns
        for step in walk(row, to_row, rows):
            hops.append(links[row * columns + column, (step, 0)])
            row = (row + step) % rows
        return hops

    return path


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
    network = {key: todo[key] for key in NETWORK if key in todo}
    hosts = build(NetZone.create_full_zone("all"), p, todo["node_size"], **network)
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
