"""Problems of module 08, memory and out of core."""

from lib_dlhpc.explore.memory_wall import adapters, ledger, outside
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.memory import attention_activation_saved
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.problems import FADED, PAGE, WORKED, Cases, Problem, Step, Trap

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


def state_of(level: int) -> float:
    """Return the bytes of weights, gradients and optimizer state of a GPU, with that level of ZeRO."""
    run = predict(ledger.experiment(ledger.Setting(), zero=level, nodes=NODES, devices_per_node=8))
    return sum(float(run.memory[each]) for each in ledger.STATE)


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
        f"GPT-2 has {parameters:,.0f} weights. Adam in mixed precision stores weights and gradients in 16 bits, and a"
        " copy of the weights and two moments in 32 bits. How much memory do all of these take?",
        ledger.shares(ledger.Setting())[1],
        Step("Weights: 2 B each", 2 * parameters, "B"),
        Step("Gradients: 2 B per weight", 2 * parameters, "B"),
        Step("Copy and two moments: 3 times 4 B per weight", 12 * parameters, "B"),
        Step("All together: 16 B per weight", 16 * parameters, "B"),
    ),
    Problem(
        "Offloading, hidden",
        f"A step of {NAME} takes {show(step, 's', 4)}, {outside.forward_share(MOVED):.2%} of it in the forward pass."
        f" Offloading moves {show(need.moved, 'B', 4)}: half of the bytes leave during the forward pass, and half"
        " return during the backward pass. How fast must the host link be to hide both transfers?",
        need.required,
        Step("Time of the forward pass, the shorter one", forward, "s"),
        Step("Bytes that leave during it", need.moved / 2, "B"),
        Step("These bytes over that time", need.moved / 2 / forward, "B/s"),
    ),
    Problem(
        "Selective recomputation",
        "A transformer layer stores s b h (34 + 5 a s / h) bytes of activations. Selective recomputation recomputes the"
        f" second term, which is cheap. There are a = {HEADS} heads, s = {SEQUENCE:,} tokens and h ="
        f" {HIDDEN:,} features. What share of the activations does selective recomputation free?",
        100 * attention_activation_saved(HEADS, SEQUENCE, HIDDEN),
        Step("Second term: 5 a s / h", quadratic),
        Step("Second term over the sum, 34 + 5 a s / h", 100 * quadratic / (34 + quadratic), "%"),
    ),
    Problem(
        "ZeRO 1",
        f"The network of problem 1 trains on {GPUS} replicas with ZeRO 1. Adam's copy and moments take 12 B per"
        " weight. How much optimizer state does a GPU hold?",
        float(sharded.memory["optimizer state"] + sharded.memory["master weights"]),
        Step("State of all weights: 12 B each", 12 * parameters, "B"),
        Step("Shard of one GPU: that over the number of replicas", 12 * parameters / GPUS, "B"),
        kind=WORKED,
    ),
    Problem(
        "ZeRO 2",
        f"The same {GPUS} replicas use ZeRO 2, which shards the gradients, too. How much memory do weights, gradients"
        " and optimizer state take on a GPU?",
        state_of(2),
        Step("Weights, whole: 2 B each", 2 * parameters, "B"),
        Step(
            "Gradients and optimizer state, a shard: 14 B over the replicas",
            14 * parameters / GPUS,
            "B",
        ),
        Step("Together", 2 * parameters + 14 * parameters / GPUS, "B"),
        kind=FADED,
    ),
    Problem(
        "What ZeRO 3 saves",
        f"How much less do weights, gradients and optimizer state take on each of the {GPUS} GPUs with ZeRO 3 than with"
        " ZeRO 1?",
        state_of(1) - state_of(3),
        Step("Weights and gradients with ZeRO 1, whole: 4 B each", 4 * parameters, "B"),
        Step("With ZeRO 3, a shard", 4 * parameters / GPUS, "B"),
        Step("The difference; the state is sharded in both", 4 * parameters * (1 - 1 / GPUS), "B"),
        traps=[
            Trap(
                16 * parameters * (1 - 1 / GPUS),
                "That is the saving over no ZeRO at all. ZeRO 1 already shards the optimizer state.",
            )
        ],
    ),
    Problem(
        "The state of adapters",
        f"Llama 3 8B has {BLOCKS} blocks; in each, matmuls turn {WIDE:,} features into {WIDE:,} numbers of queries"
        f" and {KEYS:,} of values. LoRA freezes all weights. Beside each of these two matmuls it trains an adapter of"
        f" rank {RANK}: one matrix from the features to the rank, and one from the rank to the outputs. Gradients are"
        " in 16 bits, Adam's copy and two moments in 32 bits. How much memory do gradients and optimizer state take?",
        adapters.state(tuned),
        Step(
            "Weights of the adapter for queries: rank times (inputs + outputs)",
            RANK * (WIDE + WIDE),
        ),
        Step("Weights of the adapter for values, in the same way", RANK * (WIDE + KEYS)),
        Step("Weights of both, in all blocks", trained),
        Step("2 B of gradient and 12 B of state per weight", 14 * trained, "B"),
    ),
    Problem(
        "Muon",
        f"{LLAMA[0]} has {every / 1e9:.3f} billion weights. AdamW updates {tables / 1e9:.3f} billion of them, in"
        " embedding tables, norms and the output layer, and stores two moments for each. Muon updates all others and"
        " stores one number for each, its momentum. Weights and gradients take 16 bits; a copy of the weights and all"
        " optimizer state take 32 bits. How much memory do all of these take?",
        sum(float(muon.memory[each]) for each in ledger.STATE),
        Step("Weights, gradients and copy: 8 B per weight", 8 * every, "B"),
        Step("One number of optimizer state for every weight", 4 * every, "B"),
        Step("All, with a second number for AdamW's weights", 12 * every + 4 * tables, "B"),
        traps=[
            Trap(
                16 * every,
                "That is Adam for all weights. Muon stores only one number for each of its weights.",
            )
        ],
    ),
    Problem(
        "Find the mistake: a share of everything",
        f"A plan trains with Adam in mixed precision, 16 B of weights, gradients and optimizer state per parameter, and"
        f" ZeRO 1 over {SHARDS} replicas. To estimate the memory of a GPU, it divides all 16 B by {SHARDS}. How many"
        " times as much as planned does a GPU really need?",
        sum(float(zero.memory[each]) for each in ledger.STATE) / (16 * parameters / SHARDS),
        Step("Planned bytes per parameter", 16 / SHARDS),
        Step(
            "Bytes per parameter: weights and gradients whole, optimizer state sharded",
            4 + 12 / SHARDS,
        ),
        Step("Needed over planned", (4 + 12 / SHARDS) * SHARDS / 16),
        traps=[
            Trap(
                (2 + 14 / SHARDS) * SHARDS / 16,
                "That holds for ZeRO 2, which shards gradients, too.",
            ),
            Trap(
                SHARDS,
                "That shards nothing. ZeRO 1 shards the optimizer state, 12 of the 16 bytes.",
            ),
        ],
    ),
]
