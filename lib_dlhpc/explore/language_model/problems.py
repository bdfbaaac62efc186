"""Problems of module 12, training a large language model."""

import numpy as np

from lib_dlhpc.explore.language_model import experts, layout
from lib_dlhpc.explore.language_model.layout import GPUS, SEQUENCES, mfu, predicted
from lib_dlhpc.explore.language_model.layout import Setting as Layout
from lib_dlhpc.prediction.pipelined import Ranks, pipeline_time
from lib_dlhpc.teaching.problems import Problem, Step

STAGES, MICROBATCHES, FORWARD, BACKWARD = 16, 32, 0.1, 0.2
work = MICROBATCHES * (FORWARD + BACKWARD)
free = np.zeros(STAGES - 1)
passes = (np.full(STAGES, FORWARD), np.full(STAGES, BACKWARD))
pipeline = pipeline_time(Ranks(*passes, free, free), MICROBATCHES, "1f1b")
own = predicted(Layout())
flop, seconds = float(own.experiment.model.train_flop), float(own.step_time)
PEAK = 989e12
rate = flop * SEQUENCES / GPUS / seconds
long = Layout(context=4)
tokens = experts.SEQUENCES * experts.TOKENS
trillion = experts.HOURS_EACH * 3600 / experts.GPUS

PROBLEMS = [
    Problem(
        "A bubble",
        f"{STAGES} equal stages, 1F1B, {MICROBATCHES} microbatches; a stage takes {FORWARD:g} s forward and"
        f" {BACKWARD:g} s backward. Messages are free. What share of the step is bubble?",
        [
            Step("Work of a stage", work, "s"),
            Step(
                "Bubble: (p - 1) passes forward and backward",
                (STAGES - 1) * (FORWARD + BACKWARD),
                "s",
            ),
            Step("Over work and bubble", 100 * (STAGES - 1) / (MICROBATCHES + STAGES - 1), "%"),
        ],
        100 * (1 - work / float(pipeline)),
    ),
    Problem(
        "MFU",
        f"A sequence of 8,192 tokens takes {flop / 1e15:.4g} PFLOP to train Llama 3 405B. {GPUS:,} GPUs with a peak"
        f" of 989 TFLOP/s train {SEQUENCES:,} of them in {seconds:.4g} s. What is the MFU?",
        [
            Step("FLOP of a GPU in a step", flop * SEQUENCES / GPUS, "FLOP"),
            Step("Over the time of a step", rate, "FLOP/s"),
            Step("Over the peak", 100 * rate / PEAK, "%"),
        ],
        100 * mfu(own),
    ),
    Problem(
        "Sequences of a replica",
        f"{GPUS:,} GPUs, {SEQUENCES:,} sequences in a step. Tensor {long.tensor}, pipeline {long.pipeline}, context"
        f" {long.context}. How many sequences does a replica have?",
        [
            Step("GPUs of a replica", long.replica),
            Step("Replicas", GPUS / long.replica),
            Step("Sequences of each", SEQUENCES * long.replica / GPUS),
        ],
        float(layout.experiment(long).strategy.batch),
    ),
    Problem(
        "A published step",
        f"A trillion tokens took {experts.HOURS_EACH:,} GPU-hours on {experts.GPUS:,} GPUs; a step has"
        f" {experts.SEQUENCES:,} sequences of {experts.TOKENS:,} tokens. How long is a step?",
        [
            Step("Seconds of a trillion tokens", trillion, "s"),
            Step("Tokens of a step", tokens),
            Step("Seconds of a step", trillion * tokens / 1e12, "s"),
        ],
        experts.published_step(),
    ),
]
