"""collective_name: one name for a collective, however PyTorch, NCCL, gloo, XLA, TensorFlow, Horovod and MPI call it."""

import re

# By how their names begin, without - and _, in the order in which they are looked for.
BEGINNINGS = {
    "reducescatter": "reduce-scatter",
    "allreduce": "allreduce",
    "allgather": "all-gather",
    "alltoall": "all-to-all",
    "raggedalltoall": "all-to-all",
    "collectivepermute": "permute",
    "collectivebroadcast": "broadcast",
    "collectivereducescatter": "reduce-scatter",
    "collectivereduce": "allreduce",
    "collectivegather": "all-gather",
    "collectivealltoall": "all-to-all",
    "collectivebcast": "broadcast",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "sendrecv": "send and receive",
    "send": "send",
    "recv": "receive",
    "receive": "receive",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
}
_LIBRARY = re.compile(
    r"^(?:(?:nccl|rccl)\w*?(?:kernel|func)_|gloo:|nccl:?|mpi_|horovod(?:grouped)?)"
)


def collective_name(name: str) -> str:
    """Return "allreduce" for all_reduce, ncclDevKernel_AllReduce_Sum_f32_RING_LL(...) and all-reduce.6.

    Of what is no collective or message, "communication".
    """
    plain = re.sub(r"[-_]", "", _LIBRARY.sub("", name.lower()))
    found = (word for beginning, word in BEGINNINGS.items() if plain.startswith(beginning))
    return next(found, "communication")
