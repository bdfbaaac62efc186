"""Problems of module 08, memory and out of core."""

from lib_dlhpc.explore.memory_wall import adapters, ledger, outside
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.memory import attention_activation_saved
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import PAGE, Cases, Problem, Step, Trap

draw: Cases = globals().get("draw", PAGE)

own = ledger.experiment(ledger.Setting())
parameters = float(own.model.parameters)
NAME, MODEL = draw.any(
    [("BERT large", "bert-large"), ("ResNet-50", "resnet50"), ("VGG-16", "vgg16")]
)
MOVED = outside.Setting(MODEL, draw.any([16, 8]))
step, need = outside.seconds(MOVED, "in core"), outside.needed(MOVED)
forward = step * outside.forward_share(MOVED)
NODES = draw.any([2, 4, 8])
sharded = predict(ledger.experiment(ledger.Setting(), zero=1, nodes=NODES, devices_per_node=8))
GPUS = 8 * NODES
HEADS, SEQUENCE, HIDDEN = draw.any(
    [(96, 2048, 12288), (40, 2048, 5120), (64, 4096, 8192), (32, 1024, 4096)]
)
RANK = draw.any([32, 8, 48, 64])
tuned = adapters.tuned(lora=RANK)
BLOCKS, WIDE, KEYS = 32, 4096, 1024  # of Llama 3 8B
trained = BLOCKS * RANK * (WIDE + WIDE + WIDE + KEYS)
LLAMA = draw.any(
    [("Llama 3 8B", "llama3-8b"), ("Qwen 2.5 7B", "qwen2.5-7b"), ("Llama 3 70B", "llama3-70b")]
)
muon = predict(ledger.experiment(ledger.Setting(model=LLAMA[1]), optimizer="muon"))
every = float(muon.experiment.model.parameters)
tables = float(muon.memory["optimizer state"]) / 4 - every
SHARDS = draw.any([32, 16, 64])
zero = predict(ledger.experiment(ledger.Setting(), zero=1, nodes=SHARDS // 8, devices_per_node=8))
quadratic = 5 * HEADS * SEQUENCE / HIDDEN

PROBLEMS = [
    Problem(
        "Weights and their state",
        f"GPT-2 has {parameters:,.0f} weights. Adam in mixed precision: weights and gradients in 16 bits, a"
        " copy and two moments in 32. How much memory is that?",
        ledger.shares(ledger.Setting())[1],
        Step("Weights: 2 B each", 2 * parameters, "B"),
        Step("Gradients: 2 B each", 2 * parameters, "B"),
        Step("Copy and moments: 3 times 4 B each", 12 * parameters, "B"),
        Step("Together: 16 B each", 16 * parameters, "B"),
    ),
    Problem(
        "Offloading, hidden",
        f"A step of {NAME} takes {show(step, 's', 4)}, of which"
        f" {outside.forward_share(MOVED):.2%} are forward; {show(need.moved, 'B', 4)} are moved, half of"
        " them out during forward, half back. How fast must the host link be to hide it?",
        need.required,
        Step("Seconds of forward, the shorter pass", forward, "s"),
        Step("Bytes that leave in it", need.moved / 2, "B"),
        Step("Bytes over seconds", need.moved / 2 / forward, "B/s"),
    ),
    Problem(
        "ZeRO 1",
        f"The same weights on {GPUS} replicas with ZeRO 1. How much optimizer state does a GPU hold, if Adam's"
        " copy and moments take 12 B per weight?",
        float(sharded.memory["optimizer state"] + sharded.memory["master weights"]),
        Step("State of all: 12 B each", 12 * parameters, "B"),
        Step("Its shard: over the replicas", 12 * parameters / GPUS, "B"),
    ),
    Problem(
        "Selective recomputation",
        "A transformer layer stores s b h (34 + 5 a s / h) bytes; the second term is recomputed cheaply. With"
        f" a = {HEADS} heads, s = {SEQUENCE:,}, h ="
        f" {HIDDEN:,}: what share of the activations does selective recomputation free?",
        100 * attention_activation_saved(HEADS, SEQUENCE, HIDDEN),
        Step("5 a s / h", quadratic),
        Step("Over 34 and itself", 100 * quadratic / (34 + quadratic), "%"),
    ),
    Problem(
        "The state of adapters",
        f"Llama 3 8B has {BLOCKS} blocks, {WIDE:,} features, queries of {WIDE:,} and values of {KEYS:,}. LoRA freezes"
        f" its weights and trains, beside the products of queries and of values, two matrices of rank {RANK}: one reads"
        " all features, one writes the output. Gradients in 16 bits; Adam's copy and two moments in 32. How much"
        " memory do gradients and optimizer state take?",
        adapters.state(tuned),
        Step("Adapter of queries: rank times (inputs + outputs)", RANK * (WIDE + WIDE)),
        Step("Adapter of values", RANK * (WIDE + KEYS)),
        Step("Both, in all blocks", trained),
        Step("2 B of gradient and 12 B of state each", 14 * trained, "B"),
    ),
    Problem(
        "Muon",
        f"{LLAMA[0]} has {every / 1e9:.3f} billion weights. Muon keeps one number of state for each, its momentum; the"
        f" {tables / 1e9:.3f} billion in tables, norms and logits are updated by AdamW, which keeps two. Weights and"
        " gradients have 16 bits; an fp32 copy and all state 32. How much memory do all of them take?",
        sum(float(muon.memory[each]) for each in ledger.STATE),
        Step("Weights, gradients and copy: 8 B each", 8 * every, "B"),
        Step("One number of state for each", 4 * every, "B"),
        Step("With another for tables, norms and logits", 12 * every + 4 * tables, "B"),
        traps=[
            Trap(
                16 * every,
                "That is Adam for all. Muon keeps one number for each weight of a matrix.",
            )
        ],
    ),
    Problem(
        "Find the mistake: a share of everything",
        f"A plan trains with Adam in mixed precision, 16 B of weights, gradients and optimizer state per parameter, and"
        f" ZeRO 1 over {SHARDS} replicas. It divides all 16 B by {SHARDS}. How many times as much as the plan allows"
        " does a GPU need for them?",
        sum(float(zero.memory[each]) for each in ledger.STATE) / (16 * parameters / SHARDS),
        Step("The plan, bytes per parameter", 16 / SHARDS),
        Step("Weights and gradients whole, the state sharded", 4 + 12 / SHARDS),
        Step("One over the other", (4 + 12 / SHARDS) * SHARDS / 16),
        traps=[
            Trap((2 + 14 / SHARDS) * SHARDS / 16, "That is ZeRO 2, which shards gradients, too."),
            Trap(SHARDS, "The optimizer state is sharded: 12 of the 16 bytes."),
        ],
    ),
]
