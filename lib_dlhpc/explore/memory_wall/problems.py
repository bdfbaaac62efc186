"""Problems of module 08, memory and out of core."""

from lib_dlhpc.explore.memory_wall import adapters, ledger, outside
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.memory.device_ledger import attention_activation_saved
from lib_dlhpc.teaching.problem_texts import Numbers, written
from lib_dlhpc.teaching.problems import PAGE, Cases

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

PROBLEMS = written(
    globals(),
    state=Numbers(
        ledger.shares(ledger.Setting())[1],
        each=2 * parameters,
        moments=12 * parameters,
        total=16 * parameters,
    ),
    offloading=Numbers(
        need.required,
        forward_share=outside.forward_share(MOVED),
        leaves=need.moved / 2,
        rate=need.moved / 2 / forward,
    ),
    selective=Numbers(
        100 * attention_activation_saved(HEADS, SEQUENCE, HIDDEN),
        share=100 * quadratic / (34 + quadratic),
    ),
    zero_1=Numbers(
        float(sharded.memory["optimizer state"] + sharded.memory["master weights"]),
        state=12 * parameters,
        shard=12 * parameters / GPUS,
    ),
    zero_2=Numbers(
        state_of(2),
        weights=2 * parameters,
        shard=14 * parameters / GPUS,
        total=2 * parameters + 14 * parameters / GPUS,
    ),
    zero_3=Numbers(
        state_of(1) - state_of(3),
        whole=4 * parameters,
        shard=4 * parameters / GPUS,
        saved=4 * parameters * (1 - 1 / GPUS),
        without=16 * parameters * (1 - 1 / GPUS),
    ),
    lora=Numbers(
        adapters.state(tuned),
        queries=RANK * (WIDE + WIDE),
        keys=RANK * (WIDE + KEYS),
        total=14 * trained,
    ),
    muon=Numbers(
        sum(float(muon.memory[each]) for each in ledger.STATE),
        billions=every / 1e9,
        by_adamw=tables / 1e9,
        copies=8 * every,
        one=4 * every,
        total=12 * every + 4 * tables,
        adam=16 * every,
    ),
    all_sharded=Numbers(
        sum(float(zero.memory[each]) for each in ledger.STATE) / (16 * parameters / SHARDS),
        planned=16 / SHARDS,
        needed=4 + 12 / SHARDS,
        ratio=(4 + 12 / SHARDS) * SHARDS / 16,
        zero_2=(2 + 14 / SHARDS) * SHARDS / 16,
    ),
)
