"""What a stage of PyTorch's pipelines holds beside Megatron-LM's: messages of all microbatches, and copies of FSDP.

Sources, of PyTorch 2.6. torch/distributed/pipelining/stage.py: each microbatch has buffers of its own, for the input of
a stage and for the gradients of its output (args_recv_info, grad_recv_info), for the whole run; the outputs of a step,
of the last stage the logits (output_chunks), and the gradients of inputs (buffer.grad) are freed when the next step
starts (clear_runtime_states). torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py: gathers of two units, and the
shards of gradients, are allocated in streams of their own, and memory of one stream serves no other
(c10/cuda/CUDACachingAllocator.cpp). Backward gives all gradients of a unit before they are accumulated
(_fsdp_param_group.py: post_backward).
"""

from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.layout import Part
from lib_dlhpc.prediction.pipelines.pipelined import in_flight
from lib_dlhpc.spec.strategy import PYTORCH, Strategy

WAYS = "receives", "sends"


class StoredMessages(NamedTuple):
    """What a rank keeps of messages: how many of its parts receive and send, elements of a sample of its last output.

    none: 1 where messages are freed once they are used, else 0.
    """

    receives: float = 0.0
    sends: float = 0.0
    output: float = 0.0
    none: float = 1.0


def holds_messages(strategy: Strategy) -> bool:
    """Return whether a stage holds messages as PyTorch does."""
    return strategy.pipeline_runtime == PYTORCH and int(strategy.pipeline) > 1


def kept_by(held: tuple[Part, ...]) -> StoredMessages:
    """Return what a rank keeps of its parts' messages; the last part has neither a message to send nor one after it."""
    last = [part.model.layers[-1] for part in held if not part.sends]
    output = sum(float(np.prod(layer.output_shape)) for layer in last)
    receives, sends = (sum(map(bool, [getattr(part, way) for part in held])) for way in WAYS)
    return StoredMessages(float(receives), float(sends), output, 0.0)


def kept_elements(
    kept: StoredMessages,
    rank: Any,
    stages: Any,
    chunks: Any,
    many: Any,
    schedule: str,
    sizes: tuple[Any, Any],
) -> Any:
    """Return the elements of a sample of all messages that a rank keeps, where its activations have most.

    sizes: elements of a sample of a message from the stage before, and to the next. What microbatches in flight
    received, and the logits of one of them, are among activations.
    """
    before, after = sizes
    flight = in_flight(rank, stages, many, schedule, chunks)
    gone = np.maximum(0, many * kept.receives - flight)
    outputs = 0 if schedule == "gpipe" else many - 1
    return 2 * gone * before + 2 * many * kept.sends * after + outputs * kept.output
