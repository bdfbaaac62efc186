"""Form B of the concept test's first ten items: the same misconceptions in the same order, in other situations.

A pilot asks form A before and form B after, so that nobody answers from memory. How hard the two are beside each other
is not known yet: compare arms, not forms.
"""

from lib_dlhpc.teaching.questions import Question

QUESTIONS = [
    Question(
        "short messages",
        "Two algorithms sum one flag over all ranks. One has half as many rounds, the other sends half as many bytes."
        " The faster one is",
        "the one with half as many rounds",
        {
            "the one that sends half as many bytes": "Bandwidth is what matters.",
            "the one whose ranks add less": "Adding is the work of an allreduce.",
            "the one that is a ring": "Ring is the best allreduce.",
        },
        "Each round pays the latency, and a flag takes next to no time on the wire.",
    ),
    Question(
        "long messages",
        "A few ranks sum gradients of two gigabytes. The sum takes longest if",
        "each round sends the whole buffer",
        {
            "there are twice as many rounds, each with half of the bytes": "Latency decides at any size.",
            "buffers travel in pieces, to different ranks": "Pieces cost more than wholes.",
            "ranks do not form a ring": "Ring is the best allreduce.",
        },
        "Bytes decide, and sending the whole buffer in each round moves the most.",
    ),
    Question(
        "twice the ranks",
        "You train with the same global batch on four times the GPUs. What falls to a quarter?",
        "The samples that each GPU computes",
        {
            "The time of a step": "Twice the GPUs, half the time.",
            "The gradients that each GPU sends": "Gradients shrink with the samples.",
            "Nothing, since a step is its exchange": "Only the exchange counts.",
        },
        "Samples are divided among the GPUs; each GPU has the gradients of all weights, as before.",
    ),
    Question(
        "overlap",
        "Gradients are sent in buckets while backward is running. Their exchange takes a third as long as backward. A"
        " network that is twice as fast saves",
        "half of what the last bucket takes",
        {
            "nothing, since all of it is hidden": "Overlap hides all communication.",
            "a quarter of the exchange": "Half is always exposed.",
            "half of the exchange": "An exchange starts when backward has ended.",
        },
        "Only the last bucket, which is full when backward ends, has nothing to hide behind.",
    ),
    Question(
        "slow one",
        "One of 64 GPUs gets hot and computes at a third of its speed. Updates are synchronous. The run takes",
        "about three times as long",
        {
            "a few percent longer": "The mean decides.",
            "as long as before, if the others have time to spare": "Work moves to ranks that are free.",
            "a half longer": "A delay is divided among all ranks.",
        },
        "In each step, the update waits for the hot GPU.",
    ),
    Question(
        "small variations",
        "The step times of equal GPUs vary by a few percent, at random. You go from 8 GPUs to 800, with the same"
        " number of samples each. A synchronous step",
        "gets longer: some GPU is late each time",
        {
            "stays as it is: late and early GPUs cancel": "The mean decides.",
            "gets steadier, and so a little shorter": "A larger sample has less spread.",
            "gets longer a hundredfold, as delays add up": "Variations add up.",
        },
        "The slowest of 800 is later than the slowest of 8, by a few percent and not a hundredfold.",
    ),
    Question(
        "asynchronous",
        "Workers no longer wait for each other; each gradient is applied when it arrives, and is some updates old."
        " The run",
        "needs a smaller learning rate, and so more gradients",
        {
            "reaches any loss sooner, since no GPU is idle": "Asynchronous is faster, so it is better.",
            "cannot converge with gradients of weights that have changed": "Stale gradients do not converge.",
            "learns the same from each gradient, and has more of them": "A gradient is as good for any weights.",
        },
        "Old gradients converge only at smaller learning rates; the gain depends on how long workers had waited.",
    ),
    Question(
        "agreement",
        "With a new implementation of the exchange, all ranks have bitwise equal weights after a thousand steps. This"
        " shows",
        "that they agree, and no more",
        {
            "that they sum the right gradients": "If the replicas agree, the gradients are right.",
            "that their gradients were equal before the exchange": "Replicas compute the same.",
            "that they are right, if the loss has fallen as well": "A falling loss proves the gradient.",
        },
        "A contribution that is missing from the sum is missing on all ranks; a comparison with one rank on the same"
        " batch would show it.",
    ),
    Question(
        "larger batch",
        "A batch is doubled ten times, each time with a learning rate tuned for it. The steps to a given accuracy",
        "fall by half at first, then by less and less",
        {
            "fall by half each time": "A larger batch gives a better gradient, so steps fall in proportion.",
            "stay as many as before": "Each step learns the same amount.",
            "fall, and at some batch the accuracy is out of reach for good": "A large batch cannot reach the accuracy.",
        },
        "Beyond the critical batch, more samples hardly improve the direction.",
    ),
    Question(
        "learning rate",
        "Eight small steps become one, with eight times the batch and eight times the learning rate. This gives"
        " nearly the same weights",
        "if the gradient hardly changes in the eight steps",
        {
            "because the same gradients are summed": "Linear scaling of the rate always works.",
            "at any rate that was reached by a warm-up of some epochs": "A long enough warm-up repairs it.",
            "if the rate stays as it was": "The rate belongs to the network, not to the batch.",
        },
        "The large step takes all gradients at the weights before the first small step.",
    ),
]
