"""Training: hyper-parameters of the optimizer and of the gradients."""

from lib_dlhpc.records import dataclass
from lib_dlhpc.spec.schema import LEARNING, choice, holds, number, whole

DECAYS = ("constant", "step", "cosine", "quadratic", "growth")
NORMALIZATIONS = ("local", "global")
COLLECTIVES = ("schedule", "mpi")  # strategy.allreduce's schedule, or MPI_Allreduce
WARM_UP = (
    "a step is priced after the warm-up, in which more is sent; the time of the run includes it"
)


@dataclass(frozen=True)
class Training:
    """Hyper-parameters of a run; most are run-only (run_only.py). Epochs are passes over the training samples."""

    # learning rate after the warm-up
    rate: float = number(default=0.02, positive=True, run_only=LEARNING)
    # linear scaling: `rate` is for this global batch
    base_batch: int = whole(default=0, least=0, run_only=LEARNING)
    # epochs of linear warm-up
    warm_up: float = number(default=0.0, run_only=LEARNING)
    decay: str = choice(
        DECAYS, default="constant", run_only={"growth": "the batch size grows over the run"}
    )
    # epochs between two tenfold decays
    steps_at: float = number(default=30.0, positive=True, run_only=LEARNING)
    momentum: float = number(default=0.9, most=1.0, run_only=LEARNING)
    weight_decay: float = number(default=0.0, run_only=LEARNING)
    # LARS and LAMB trust coefficient: layer rate over |w|/|g|
    trust: float = number(default=0.001, positive=True, run_only=LEARNING)
    # batch norm statistics: of a rank's samples, or of all
    normalization: str = choice(
        NORMALIZATIONS, default="local", run_only={"global": "batch norm allreduces its statistics"}
    )
    # keeps fp16 gradients from underflow
    loss_scale: float = number(default=1024.0, positive=True, run_only=LEARNING)
    # gradient compression: fraction of elements not sent
    sparsity: float = number(default=0.0, most=0.9999)
    # epochs over which the sparsity rises
    sparsity_warm_up: float = number(default=0.0, run_only=WARM_UP)
    # gradient compression: columns of the two factors of a matrix; 0: none (PowerSGD)
    low_rank: int = whole(default=0, least=0)
    # local updates: of the outer optimizer, on the difference that an average makes; 1 and 0: none (DiLoCo)
    outer_rate: float = number(default=1.0, positive=True)
    outer_momentum: float = number(default=0.0, most=1.0)
    # largest random shift of an image, in pixels
    shift: int = whole(default=0, least=0, run_only="ranks shift images while loading a batch")
    # which allreduce synchronizes the gradients
    collective: str = choice(
        COLLECTIVES, default="schedule", run_only={"mpi": "MPI_Allreduce chooses its own algorithm"}
    )

    @property
    def compresses(self) -> bool:
        """Whether only the largest gradients, or factors of them, are exchanged."""
        return holds(self.sparsity) or holds(self.low_rank)
