"""Training: how fast the weights move, and what is done to the gradients on the way. Only a real run reads it."""

from dataclasses import dataclass

from lib_dlhpc.spec.schema import choice, number, whole

DECAYS = ("constant", "step", "cosine", "quadratic", "growth")
NORMALISATIONS = ("local", "global")
COLLECTIVES = ("schedule", "mpi")  # strategy.allreduce's schedule, or the MPI library's own


@dataclass(frozen=True)
class Training:
    """Hyper-parameters of a run. Epochs count passes over the training samples."""

    rate: float = number(default=0.02, positive=True)  # learning rate after the warm-up
    base_batch: int = whole(default=0, least=0)  # linear scaling: `rate` is for this global batch
    warm_up: float = number(default=0.0)  # epochs in which the rate rises in a straight line
    decay: str = choice(DECAYS, default="constant")
    steps_at: float = number(default=30.0, positive=True)  # epochs between two tenfold falls
    momentum: float = number(default=0.9, most=1.0)
    weight_decay: float = number(default=0.0)
    trust: float = number(
        default=0.001, positive=True
    )  # LARS and LAMB: rate of a layer over |w|/|g|
    normalisation: str = choice(
        NORMALISATIONS, default="local"
    )  # batch norm: a rank's samples, or all
    loss_scale: float = number(
        default=1024.0, positive=True
    )  # fp16 gradients would vanish without it
    sparsity: float = number(default=0.0, most=0.9999)  # gradient compression: share not sent
    sparsity_warm_up: float = number(default=0.0)  # epochs in which the sparsity rises
    shift: int = whole(default=0, least=0)  # pixels that an image is moved by at random, at most
    collective: str = choice(COLLECTIVES, default="schedule")  # whose allreduce sums the gradients
