"""Design problem of module 11: where the time of a run goes that no kernel takes."""

from statistics import NormalDist

from lib_dlhpc.teaching.designs import Design, Draw, Part, Step, begun, simulate_terms, varied

STEPS, WEIGHTS, JITTER, LINK = 30, 25.6e6, 0.06, 25e9


def design(draw: Draw) -> Design:
    """Return a version: nodes."""
    nodes = draw.of([4, 8, 16])
    gpus = 8 * nodes
    toml = f"""
[model]
name = "resnet50"

[dataset]
name = "imagenet"

[machine]
name = "selene"
jitter = {JITTER}              # standard deviation over mean of a GPU's step

[strategy]
nodes = {nodes}
batch = 32
precision = "fp16"
"""
    run, now = begun(toml)
    work = float(now.forward + now.backward + now.update)
    late = JITTER * NormalDist().inv_cdf((gpus - 0.375) / (gpus + 0.25))
    ring = 2 * (nodes - 1) / nodes * 2 * WEIGHTS / (8 * LINK)
    terms = simulate_terms(run, steps=STEPS)
    step, wait, exposed = (
        float(terms.step_time),
        terms.terms["waiting for the slowest"],
        terms.terms["exposed communication"],
    )
    calm = varied(run, machine__jitter=JITTER / 2)
    wide = varied(run, machine__inter_node__bandwidth="400 Gb/s")
    large, local = varied(run, batch=64), varied(run, update="local", local_steps=8)
    serial = varied(run, overlap=False)
    gain = {
        "jitter": float(now.step_time / calm.step_time - 1) * 100,
        "network": float(now.step_time / wide.step_time - 1) * 100,
    }
    return Design(
        "A network that nobody needs",
        f"ResNet-50 ({WEIGHTS / 1e6:.1f} million parameters) runs on {nodes} nodes of eight A100s with 32 images each."
        f" A GPU works {work * 1e3:.2f} ms per step, with a standard deviation of {JITTER:.0%} from GPU to GPU and"
        f" step to step. Each node has eight HDR NICs of {LINK / 1e9:.0f} GB/s. The profiler shows long bars of"
        " `ncclAllReduce`, and your group wants NDR NICs, twice as fast. The alternative is to bind processes to"
        " cores and stop the daemons, which would halve the deviation.",
        toml,
        float(now.step_time),
        [
            Part(
                f"How much later than the mean is the slowest of {gpus} GPUs expected (Blom: the normal quantile of (p"
                " - 3/8)/(p + 1/4))? How long does an allreduce between the nodes take, if all NICs share it and each"
                " gradient takes 2 B? Which parallel efficiency do you expect, if all of it is hidden behind"
                " backward?",
                [
                    Step("Slowest over mean: σ m_p", 100 * late, "%"),
                    Step("Wait of an average GPU", work * late, "s"),
                    Step("Ring: 2 (k - 1)/k · 2 N / (8 NICs)", ring, "s"),
                    Step("Efficiency: 1 / (1 + σ m_p)", 100 / (1 + late), "%"),
                ],
                "Waiting takes several times as long as sending, although the profiler counts both as allreduce.",
                "All four.",
                "The mean in place of the slowest, or no wait.",
            ),
            Part(
                f"Run `dlhpc predict start.toml`, `dlhpc simulate start.toml --steps {STEPS} --trace t.json` and"
                f" `dlhpc trace analyze t.json`. Which of POP's factors is the smallest?",
                [
                    Step("Step, predicted", float(now.step_time), "s"),
                    Step("Step, simulated", step, "s"),
                    Step(
                        "Parallel efficiency: work over step, simulated",
                        100
                        * sum(terms.terms[name] for name in ("forward", "backward", "update"))
                        / step,
                        "%",
                    ),
                    Step("Waiting, simulated", wait, "s"),
                ],
                "Over many steps, each GPU is slow in turn: load balance is good, and serialization is low. A single"
                " GPU that is always slow would show up as poor load balance. Transfer, which a faster network"
                " improves, is close to one.",
                "Three commands, the factor named, and efficiency beside the estimate.",
            ),
            Part(
                "In the trace, a GPU's time in allreduce is wait plus transfer. Separate the two. Why is exposed"
                " communication not the ring time of your estimate?",
                [
                    Step("Time in allreduce beyond work, simulated", wait + exposed, "s"),
                    Step("of which exposed communication", exposed, "s"),
                    Step("Share of waiting", 100 * wait / (wait + exposed), "%"),
                    Step("All communication, predicted", float(now.communication.total), "s"),
                    Step("Exposed without overlap", float(serial.exposed_communication), "s"),
                ],
                "Overlap hides all but the last bucket, and each bucket also has its latency and a phase inside the"
                " node. What looks like a slow network is the slowest GPU, which arrives last and leaves at once: in"
                " its own row, the bar is short.",
                "Wait and transfer in seconds, and how the trace tells them apart.",
                "The share without the mechanism.",
            ),
            Part(
                "Change one of: the NICs (`machine.inter_node.bandwidth=400Gb/s`), the deviation"
                " (`machine.jitter`), 64 images per GPU, eight local steps. Which term moves?",
                [
                    Step("Twice the NICs: step", float(wide.step_time), "s"),
                    Step("Half the deviation: step", float(calm.step_time), "s"),
                    Step(
                        "64 images: images per second over before",
                        float(large.throughput / now.throughput),
                        "",
                    ),
                    Step(
                        "64 images: waiting over step",
                        float(100 * large.straggler_wait / large.step_time),
                        "%",
                    ),
                    Step("Eight local steps: waiting", float(local.straggler_wait), "s"),
                ],
                "A larger batch nearly doubles the images per second: kernels of 32 images do not fill the GPU. But"
                " the wait grows with the work and remains the same share of a step. With local steps, deviations"
                " average out between two exchanges, but training changes, too.",
                "One change with the term that moved and the one that did not.",
                "The step only.",
            ),
            Part(
                "Write the memo: do you recommend the NICs or binding? What would you try before either?",
                [
                    Step("Gain of the NICs", gain["network"], "%"),
                    Step("Gain of half the deviation", gain["jitter"], "%"),
                    Step("Ratio of the two", gain["jitter"] / gain["network"], ""),
                    Step(
                        "Gain of 64 images", 100 * float(large.throughput / now.throughput - 1), "%"
                    ),
                ],
                "Recommend binding, which costs an afternoon. Before that, try the larger batch, if accuracy allows:"
                " it gains more than both. The NICs speed up a term that is already hidden.",
                "Both gains in percent, the cheaper step first, and what a larger batch needs.",
                "The right choice without the two gains.",
            ),
            Part(
                "How could your trace mislead you?",
                [Step("Simulated steps", STEPS, "")],
                "Deviations are drawn independently, but a real GPU that is slow for an hour because it is hot would"
                " show up as poor load balance, and would have to be replaced, not bound. Clocks of nodes differ by"
                " more than a wait. Compare which GPU is last in the first and in the second half of a real trace of"
                " a few hundred steps.",
                "One way, with its direction and a check of the trace.",
            ),
        ],
    )
