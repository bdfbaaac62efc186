"""Exam questions of module 12, training a large language model."""

from lib_dlhpc.explore.language_model import experts, layout, sequences
from lib_dlhpc.explore.language_model.bubbles import SCHEDULES, bubble
from lib_dlhpc.explore.language_model.bubbles import Setting as Pipe
from lib_dlhpc.explore.language_model.charts import causes
from lib_dlhpc.explore.language_model.experts import Setting as Mixture
from lib_dlhpc.explore.language_model.layout import Setting as Layout
from lib_dlhpc.explore.language_model.layout import mfu, predicted
from lib_dlhpc.explore.language_model.questions import FAR, computed
from lib_dlhpc.explore.language_model.questions import alone as without_pipeline
from lib_dlhpc.explore.language_model.sequences import Setting as Long
from lib_dlhpc.teaching.questions import Question

own, alone, again = (predicted(s) for s in (Layout(), layout.ALONE, Layout(recompute="full")))
step, slow = float(own.step_time), float(alone.step_time)
apart_each = float(without_pipeline("strategy.zero_unit", "layer").step_time)
one, apart = 100 * bubble(Pipe()), 100 * bubble(Pipe(schedule=SCHEDULES[-1]))
fewer = 100 * bubble(Pipe(stages=8))
near, far = (100 * sequences.predicted(each).exposed for each in (Long(), FAR))
whole = float(experts.predicted(Mixture()).step_time)
fast = float(experts.predicted(Mixture(products="fp8")).step_time)
saved, arithmetic = 100 * (1 - fast / whole), 100 * computed() / whole

QUESTIONS = [
    Question(
        "fsdp alone",
        "Llama 3 405B on 16,384 H100. With 16 stages of 8 GPUs, and the optimizer state sharded, a step takes"
        f" {step:.1f} s. With no pipeline, 2,048 replicas of 8 GPUs shard everything (ZeRO 3), and it fits. How long"
        " does a step take?",
        f"{slow:.0f} s",
        {
            f"{step:.1f} s": "FSDP alone is enough if it fits.",
            f"{step - causes(own)['pipeline bubble']:.1f} s": "Only the bubble disappears.",
            f"{apart_each:.0f} s": "FSDP gathers each matrix of weights by itself.",
        },
        "A ring over 2,048 nodes pays 2,047 latencies for each block, gathered twice and reduced once.",
    ),
    Question(
        "zero bubble",
        f"16 stages, 16 microbatches of Llama 3: with 1F1B {one:.0f} % of a step is bubble. And with ZB-H1?",
        f"{apart:.0f} %",
        {
            f"{0:.0f} %": "A zero-bubble pipeline has no bubble.",
            f"{one:.0f} %": "The order of passes does not change the bubble.",
            f"{apart / 3:.0f} %": "Weight gradients fill all but the first pass.",
        },
        "Weight gradients fill some idle time; the pipeline still has to fill and drain.",
    ),
    Question(
        "half the stages",
        f"16 stages and 16 microbatches with 1F1B have a bubble of {one:.0f} % of a step. And 8 stages?",
        f"{fewer:.0f} %",
        {
            f"{one / 2:.0f} %": "The share of the bubble is proportional to the stages.",
            f"{one:.0f} %": "Only the microbatches decide the bubble.",
            f"{min(2 * one, 99):.0f} %": "Fewer stages wait longer for each other.",
        },
        "Bubble over work is (p - 1) / m; of the whole step it is (p - 1) / (m + p - 1).",
    ),
    Question(
        "far ring",
        f"Sequences of 32,768 tokens in a ring of 8 ranks in a node: {near:.2f} % of a step is exposed. In a ring"
        " of 32 ranks over four nodes, one NIC each?",
        f"{far:.0f} %",
        {
            f"{near:.2f} %": "Overlap hides a ring, whatever its length.",
            f"{4 * near:.2f} %": "Four times the ranks expose four times as much.",
            f"{100:.0f} %": "Nothing can be hidden on one NIC.",
        },
        "A block has a sixteenth of the arithmetic and a quarter of the bytes, on a slower link.",
    ),
    Question(
        "the fastest link",
        "Which kind of parallelism needs NVLink the most, and why?",
        "Tensor: each layer waits for its collectives",
        {
            "Data: gradients of all weights travel": "The gradients of all weights are the most bytes a GPU sends.",
            "Pipeline: all stages wait for a message": "A late message stops the whole pipeline.",
            "Context: keys and values of all tokens travel": "A ring waits for each of its messages.",
        },
        "What has little to hide behind sits closest.",
    ),
    Question(
        "replicas of four",
        "16,384 GPUs, 2,048 sequences in a step. Why not replicas of 4 GPUs?",
        "Half of the replicas would have no sequence",
        {
            "The batch would have to double, which costs nothing": "The batch may grow with the machine.",
            "The weights would not fit, however they are sharded": "Memory is the only limit.",
            "Each sequence would be split over replicas": "Data parallelism splits sequences too.",
        },
        "The batch is fixed by what learns well, and ends data parallelism at one sequence a replica.",
    ),
    Question(
        "twice the experts",
        "A layer gets twice as many experts; a token is sent to as many as before. The arithmetic of a token ...",
        "stays the same",
        {
            "doubles": "More experts cost more arithmetic.",
            "halves": "Each expert has half the tokens, so it computes half for each.",
            "grows with the root": "Routing costs as much as the experts.",
        },
        "Weights and memory double; a token meets as many experts as before, in as many messages.",
    ),
    Question(
        "experts in a node",
        "DeepSeek-V3's experts over the 8 GPUs of a node would exchange over NVLink. If optimizer state is not"
        " sharded, why must they be spread over eight nodes?",
        "Their weights and optimizer state would not fit",
        {
            "NVLink would be slower": "NVLink is shared, so it is slower than NICs.",
            "The router would be unbalanced": "More ranks balance a router.",
            "There would be more arithmetic": "Fewer ranks compute more for each token.",
        },
        "Eight times the experts' weights and state on each GPU; ZeRO 1 over 16 replicas would change that.",
    ),
    Question(
        "fp8",
        f"Arithmetic is {arithmetic:.0f} % of a step of DeepSeek-V3 whose exchanges are not hidden. By how much does"
        " the step fall if linear layers compute in fp8, at twice the rate of bf16?",
        f"{saved:.0f} %",
        {
            f"{100 / 2:.0f} %": "fp8 halves the step.",
            f"{arithmetic:.0f} %": "Arithmetic in fp8 is free.",
            f"{0:.0f} %": "A step that waits for messages has no use for arithmetic.",
        },
        "Half of the arithmetic of linear layers, and of its bubble, is saved, less casts; exchanges stay.",
    ),
    Question(
        "recomputed",
        f"Llama 3's layout has an MFU of {mfu(own):.0%}. All of a block is recomputed now. What is the MFU?",
        f"{100 * mfu(again):.0f} %",
        {
            f"{100 * mfu(own):.0f} %": "MFU counts all arithmetic.",
            f"{100 * mfu(own) * 4 / 3:.0f} %": "A GPU that computes more is used better.",
            f"{100 * mfu(own) / 2:.0f} %": "Recomputation doubles the step.",
        },
        "MFU counts what the network needs; recomputation is what hardware utilization (HFU) counts.",
    ),
]
