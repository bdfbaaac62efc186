"""Design problem of module 10: nodes and watts within a deadline."""

from lib_dlhpc.teaching.designs import Design, Draw, Part, Step, begun, times, varied

N, SEQUENCE, PEAK, BUSY, IDLE, NODE, PUE, GRID = 6.74e9, 4096, 312e12, 400, 60, 1944, 1.3, 0.369
HOUR, KWH, STATIC = 3600, 3.6e6, 0.3
NODES, LIMITS = (8, 16, 32), (0, 350, 300, 250, 200)


def design(draw: Draw) -> Design:
    """Return a version: billions of tokens and hours."""
    billions, hours = draw.of([(10, 12), (20, 22), (5, 7)])
    toml = f"""
[model]
name = "llama2-7b"

[dataset]
samples = {round(billions * 1e9 / SEQUENCE)}
bytes = {2e9 * billions:.0f}

[machine]
name = "selene"

[strategy]
nodes = 32
batch = 1
precision = "bf16"
optimizer = "adam"
zero = 3
recompute = "selective"
"""
    run, now = begun(toml)
    gpus = 8 * 32
    work = 6 * N * billions * 1e9
    seconds = work / (gpus * PEAK / 2)
    power = (32 * (8 * BUSY + NODE)) * PUE
    static = IDLE + STATIC * (BUSY - IDLE)
    clock = ((300 - static) / (BUSY - static)) ** 0.25
    grid = {
        (nodes, limit): varied(run, nodes=nodes, power_limit=limit)
        for nodes in NODES
        for limit in LIMITS
    }
    late = {key: float(each.time_to_train) / HOUR for key, each in grid.items()}
    joules = {key: float(each.energy_to_train) / KWH for key, each in grid.items()}
    legal = [key for key in grid if late[key] <= hours]
    least = min(legal, key=lambda key: joules[key])
    quickest = min(legal, key=lambda key: late[key])
    capped = grid[32, 300]
    free = min(grid, key=lambda key: joules[key])
    return Design(
        "Nodes, watts and a deadline",
        f"Llama 2 7B ({N / 1e9:.2f} billion parameters) is to see {billions} billion tokens within {hours} hours, with"
        f" as few joules as possible. You may use 8, 16 or 32 nodes of eight A100s ({PEAK / 1e12:.0f} TFLOP/s; {BUSY}"
        f" W busy, {IDLE} W idle); the rest of a node draws {NODE:,} W, including its share of the switches, cooling"
        f" multiplies everything by {PUE}, and the grid emits {GRID * 1e3:.0f} g per kWh. A power limit L between 200"
        f" W and {BUSY} W (`strategy.power_limit`) lowers the clock of arithmetic to φ = ((L - S)/({BUSY} - S))^¼ with"
        f" the static part S = {IDLE} + {STATIC} ({BUSY} - {IDLE}) W. Each GPU has one sequence per step.",
        toml,
        float(now.step_time),
        [
            Part(
                "On 32 nodes, how many FLOP does the run take, and how many hours at half of the peak? How many kWh"
                " does it take if every GPU is busy all the time, cooling included? By which factor does a limit of"
                " 300 W slow down arithmetic?",
                [
                    Step("Work: 6 N T", work, "FLOP"),
                    Step("Hours at half of the peak", seconds / HOUR, "h"),
                    Step("Energy: nodes (8 · 400 + rest) · PUE · t", power * seconds / KWH, "kWh"),
                    Step("Slowdown at 300 W: 1/φ", 1 / clock, ""),
                ],
                "With a quarter less power, arithmetic takes only a seventh longer: the first watts that you cut are"
                " nearly free.",
                "All four.",
                "Energy of the GPUs alone, or without cooling.",
            ),
            Part(
                "Run `dlhpc predict start.toml` and `dlhpc simulate start.toml`.",
                [
                    *times(run, now),
                    Step("Hours", late[32, 0], "h"),
                    Step("Energy", joules[32, 0], "kWh"),
                    Step("Carbon", float(now.carbon), "kg"),
                ],
                "The energy is that of the predicted time, at less than the busy power: a GPU that waits or moves"
                " data draws less.",
                "Both commands, hours and kWh beside the estimate.",
            ),
            Part(
                "Compare time and energy with yours: in which direction does each differ, and why? How much longer"
                " does forward take at 300 W, and why is that less than your 1/φ?",
                [
                    Step("Time: predicted over estimated", late[32, 0] * HOUR / seconds, ""),
                    Step(
                        "Energy: predicted over estimated",
                        joules[32, 0] * KWH / (power * seconds),
                        "",
                    ),
                    Step("Forward at 300 W over forward", float(capped.forward / now.forward), ""),
                    Step("Waiting for the slowest", float(now.straggler_wait), "s"),
                    Step(
                        "Mean power of the run, hosts and cooling included",
                        joules[32, 0] * KWH / (late[32, 0] * HOUR) / gpus,
                        "W/GPU",
                    ),
                ],
                "Half of the peak happens to cover recomputation, attention, waiting and slow matmuls, so the time is"
                " nearly right. The energy is lower although the time is longer: GPUs that wait or move data draw"
                " less than busy ones. A limit slows down only arithmetic; memory-bound layers run as fast as before.",
                "Both ratios explained by terms, and why memory-bound layers do not slow down.",
                "One of the three.",
            ),
            Part(
                "Change the limit at 32 nodes, then the number of nodes without a limit. Plot energy over time, or"
                " let `dlhpc plan start.toml --objective time,energy` do it. Where is the minimum of each line?",
                [
                    *(
                        Step(
                            f"32 nodes, {limit or BUSY} W: kWh in {late[32, limit]:.3g} h",
                            joules[32, limit],
                            "kWh",
                        )
                        for limit in LIMITS
                    ),
                    *(
                        Step(
                            f"{nodes} nodes, no limit: kWh in {late[nodes, 0]:.3g} h",
                            joules[nodes, 0],
                            "kWh",
                        )
                        for nodes in NODES
                    ),
                ],
                "Fewer nodes need nearly the same energy over a longer time, so there is little to gain. Along the"
                " limit there is a minimum: below it, hosts, fans and idle power take more energy over the longer"
                " time than the GPUs save.",
                "Both lines with their minima, and the reason for the one along the limit.",
                "One line, or no reason.",
            ),
            Part(
                f"Choose nodes and limit for the fewest joules within {hours} hours. How much more does the fastest"
                " choice cost, in kWh and in carbon?",
                [
                    Step(f"{least[0]} nodes, {least[1] or BUSY} W: hours", late[least], "h"),
                    Step("Its energy", joules[least], "kWh"),
                    Step(
                        f"{quickest[0]} nodes, {quickest[1] or BUSY} W: hours", late[quickest], "h"
                    ),
                    Step("Its energy", joules[quickest], "kWh"),
                    Step("Carbon between the two", (joules[quickest] - joules[least]) * GRID, "kg"),
                ],
                f"{least[0]} nodes at {least[1] or BUSY} W. Without the deadline it would be {free[0]} nodes at"
                f" {free[1] or BUSY} W, with {joules[free]:.0f} kWh. The differences between all these choices are"
                " small compared with the effect of recomputation, or of a month with cleaner electricity: say so.",
                "The choice within the deadline, the fastest for comparison, and the difference in carbon.",
                "A choice of watts at only one number of nodes.",
            ),
            Part(
                "Which joules does the model not count, and could they change the choice?",
                [
                    Step(
                        "Share of the estimate for the rest of the nodes and cooling",
                        100 * (1 - 8 * BUSY / ((8 * BUSY + NODE) * PUE)),
                        "%",
                    )
                ],
                "Nodes that you do not use are idle or serve others: if they are idle on your account, more nodes for"
                " a shorter time win. The law of the clock was fitted to other GPUs, and the host's power is an"
                " estimate that depends on fans. Read the energy counters of one node for an hour at each of two"
                " limits.",
                "One omission with its direction and its measurement.",
            ),
        ],
    )
