"""Exam questions of module 02, data parallelism."""

from lib_dlhpc.explore.data_parallel import race, scaling, updates, waiting
from lib_dlhpc.explore.data_parallel.bowl import most_stale_rate
from lib_dlhpc.explore.data_parallel.buckets import bucket_count, step_of
from lib_dlhpc.explore.data_parallel.race import Race
from lib_dlhpc.explore.data_parallel.waiting import Ranks
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.teaching.questions import Question

step = predict(step_of())
backward, exchange, exposed = (
    float(step.backward),
    float(step.communication.total),
    float(step.exposed_communication),
)
small, large = (predict(step_of(allreduce="ring", bucket=size)) for size in (100e3, 25e6))
waits = [float(each.communication.latency) for each in (small, large)]
halved = scaling.strong_gain(256, 512)
curve = scaling.strong(scaling.Scaling())
slows = int(curve.gpus[curve.rate.argmax()])
idle = waiting.waiting_share(Ranks(jitter=0.03, slow=2.0))
longer = waiting.expected_wait(256, 0.03)
stale = float(updates.served().staleness.mean())
runs = race.courses(Race())
COMPUTE, EXCHANGE, HIDDEN, WAIT = 200, 80, 0.75, 15
left = EXCHANGE * (1 - HIDDEN)


def efficiency(*added: float) -> str:
    """Return the efficiency of a step in which these ms are added to the computation."""
    return f"{100 * COMPUTE / (COMPUTE + sum(added)):.0f} %"


QUESTIONS = [
    Question(
        "twice the gpus",
        "Goyal's run: 8,192 images a step, 32 on each of 256 GPUs. On 512 GPUs with 16 images each, what share"
        " of the time does a step take?",
        f"{100 / halved:.0f} %",
        {
            f"{100 * 256 / 512:.0f} %": "Twice the GPUs, half the time.",
            f"{100 * 256 / 256:.0f} %": "A step takes as long as its allreduce.",
            f"{100 * (1 + 256 / 512) / 2:.0f} %": "Half of a step is communication.",
        },
        "Computation halves, and waiting for the slowest with it; the allreduce does not.",
    ),
    Question(
        "exposed",
        f"256 GPUs: backward takes {show(backward, 's')}, the allreduce {show(exchange, 's')}, in buckets of 25"
        " MB that leave as soon as they"
        " are complete. How much is exposed?",
        show(exposed, "s"),
        {
            show(0.0, "s"): "Overlap hides all communication.",
            show(
                exchange, "s"
            ): "Backward and allreduce cannot overlap, since one needs the other.",
            show(exchange / 2, "s"): "Half of the gradients are ready too late.",
        },
        "The last bucket is complete when backward ends: nothing is left to overlap with it.",
    ),
    Question(
        "small buckets",
        f"A ring on 256 GPUs. With buckets of 25 MB latency takes {show(waits[1], 's')} of a step. With"
        f" {bucket_count(small.experiment)}"
        " buckets of 100 kB and more?",
        show(waits[0], "s"),
        {
            show(waits[1], "s"): "The same bytes wait for the same latency.",
            show(
                waits[1] / bucket_count(small.experiment), "s"
            ): "Smaller buckets are always better, they start earlier.",
            show(waits[1] / 2, "s"): "Overlap hides half of the latency.",
        },
        "Each bucket pays all rounds of its ring, and each round pays the latency.",
    ),
    Question(
        "jitter",
        "256 GPUs whose steps vary by 3 % (one standard deviation). By how many percent is a synchronous step"
        " longer than the mean?",
        f"{longer:.1f} %",
        {
            f"{3:.1f} %": "Three percent of jitter costs three percent.",
            f"{3 * 256**0.5:.1f} %": "Deviations of all GPUs add up.",
            f"{3 / 256**0.5:.2f} %": "The mean of many GPUs hardly varies.",
        },
        "The slowest of 256 lies nearly three standard deviations above the mean, and all wait for it.",
    ),
    Question(
        "one slow gpu",
        "One of 256 GPUs is half as fast as the others; all update synchronously. For what share of the time"
        " is the average GPU idle?",
        f"{100 * idle:.0f} %",
        {
            f"{100 / 256:.1f} %": "The mean decides.",
            f"{100 * idle / 2:.0f} %": "The others take over half of its work.",
            f"{100 * idle / 256:.1f} %": "A wait of one GPU is divided among all.",
        },
        "All others wait for it for as long as they compute.",
    ),
    Question(
        "asynchronous",
        "8 equally fast workers, 2 servers. Asynchronous training computes"
        f" {runs['asynchronous'].gradients:.1f} gradients a second, synchronous"
        f" {runs['synchronous'].gradients:.1f}. Which one do you take?",
        "That depends on the slow workers and on the learning rate that stale gradients tolerate",
        {
            "Asynchronous, it never waits": "Asynchronous is faster, so it is better.",
            "Synchronous, since stale gradients never converge": "Stale gradients do not converge.",
            "Whichever computes more gradients a second": "More gradients are more learning.",
        },
        "Gradients a second and loss a second differ: asynchronous pays where waiting is expensive.",
    ),
    Question(
        "staleness",
        "8 equally fast asynchronous workers. How many updates old is a gradient on average when it is applied?",
        f"{stale:.0f}",
        {
            f"{stale * 0:.0f}": "A gradient is applied to the weights that it was computed with.",
            f"{stale / 7:.0f}": "Only the worker before matters.",
            f"{stale / 2:.1f}": "Half of the others push before.",
        },
        "While one computes, each of the other seven pushes an update.",
    ),
    Question(
        "stale rate",
        "Alone, a worker converges on a quadratic loss of curvature 1 up to a learning rate of"
        f" {most_stale_rate(1):.0f}. Eight workers with"
        " gradients that are 7 updates old: up to which rate of all together do they?",
        f"{most_stale_rate(8):.2f}",
        {
            f"{0:.2f}": "Stale gradients do not converge.",
            f"{8 * most_stale_rate(1):.2f}": "Workers add up, so do their rates.",
            f"{most_stale_rate(1):.2f}": "Age does not matter, the direction is right on average.",
        },
        "They converge at a lower rate; Levin and May's condition says how much lower.",
    ),
    Question(
        "end of strong scaling",
        "8,192 images a step on any number of GPUs. On 256 a step computes for"
        f" {show(float(step.compute), 's')}, and its allreduce (hierarchical, 8 GPUs a node) takes"
        f" {show(exchange, 's')}. From about how many GPUs on do more GPUs make the run slower?",
        f"{slows:,}",
        {
            f"{int(curve.gpus[-1]):,}": "More GPUs never hurt.",
            f"{slows // 8:,}": "The published run ends where scaling ends.",
            f"{int(curve.gpus[0]):,}": "Any GPU beyond those that memory asks for costs more than it brings.",
        },
        "There more ranks lengthen the allreduce by more than they shorten the computation.",
    ),
    Question(
        "efficiency",
        f"A step computes for {COMPUTE} ms, its allreduce takes {EXCHANGE} ms of which {100 * HIDDEN:.0f} % are"
        " hidden, and the slowest rank is"
        f" {WAIT} ms behind the mean. What is the efficiency?",
        efficiency(left, WAIT),
        {
            efficiency(
                EXCHANGE, WAIT
            ): "Communication that overlaps costs as much as communication that does not.",
            efficiency(WAIT): "Overlap hides all communication.",
            efficiency(EXCHANGE): "Waiting for the slowest is no loss.",
        },
        "Computation over computation, waiting and exposed communication.",
    ),
]
