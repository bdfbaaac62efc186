"""Training: how fast the weights move, and what is done to the gradients on the way. Only a real run reads it."""

from dataclasses import dataclass

from lib_dlhpc.spec.schema import LEARNING, choice, number, whole

DECAYS = ("constant", "step", "cosine", "quadratic", "growth")
NORMALISATIONS = ("local", "global")
COLLECTIVES = ("schedule", "mpi")  # strategy.allreduce's schedule, or the MPI library's own
COMPRESSED = (
    "gradients are compressed, so that messages are smaller and to choose what is sent takes time"
)


@dataclass(frozen=True)
class Training:
    """Hyper-parameters of a run. Epochs count passes over the training samples. All are run-only (run_only.py)."""

    # learning rate after the warm-up
    rate: float = number(default=0.02, positive=True, run_only=LEARNING)
    # linear scaling: `rate` is for this global batch
    base_batch: int = whole(default=0, least=0, run_only=LEARNING)
    # epochs in which the rate rises in a straight line
    warm_up: float = number(default=0.0, run_only=LEARNING)
    decay: str = choice(
        DECAYS, default="constant", run_only={"growth": "the batch of a step grows over the run"}
    )
    # epochs between two tenfold falls
    steps_at: float = number(default=30.0, positive=True, run_only=LEARNING)
    momentum: float = number(default=0.9, most=1.0, run_only=LEARNING)
    weight_decay: float = number(default=0.0, run_only=LEARNING)
    # LARS and LAMB: rate of a layer over |w|/|g|
    trust: float = number(default=0.001, positive=True, run_only=LEARNING)
    # batch norm: a rank's samples, or all
    normalisation: str = choice(
        NORMALISATIONS, default="local", run_only={"global": "batch norm sums over all ranks"}
    )
    # fp16 gradients would vanish without it
    loss_scale: float = number(default=1024.0, positive=True, run_only=LEARNING)
    # gradient compression: share not sent
    sparsity: float = number(default=0.0, most=0.9999, run_only=COMPRESSED)
    # epochs in which the sparsity rises
    sparsity_warm_up: float = number(default=0.0, run_only=COMPRESSED)
    # pixels that an image is moved by at random, at most
    shift: int = whole(default=0, least=0, run_only="ranks shift images while they fetch a batch")
    # whose allreduce sums the gradients
    collective: str = choice(
        COLLECTIVES,
        default="schedule",
        run_only={"mpi": "the MPI library sums gradients in its own way"},
    )
