"""The concept test, before and after the course: 28 items, none of which needs a formula.

The first ten are for half a day: allreduce and data parallelism. The first twenty are for a course without modules 12
and 13, the last eight are about these: language models in training and in service. Items are not in the exam; no
answers are given in between.
"""

from lib_dlhpc.teaching.questions import Question

QUESTIONS = [
    Question(
        "short messages",
        "Many ranks sum one number each. Which property of an algorithm decides how long it takes?",
        "How many rounds follow each other",
        {
            "How many bytes each rank has to send": "Bandwidth is what matters.",
            "How fast each rank adds": "Adding is the work of an allreduce.",
            "Whether ranks form a ring": "Ring is the best allreduce.",
        },
        "Each round pays a latency, and there is next to nothing to send.",
    ),
    Question(
        "long messages",
        "A few ranks sum buffers of a gigabyte. Which algorithm should you avoid?",
        "One in which ranks send the whole buffer in every round",
        {
            "One with many rounds": "Latency decides at any size.",
            "One that cuts the buffer into pieces and sends each on its own way": "Pieces cost more than wholes.",
            "Any but a ring": "Ring is the best allreduce.",
        },
        "Bytes decide: pieces that are reduced on their way move each byte about twice.",
    ),
    Question(
        "twice the ranks",
        "Data-parallel training on twice the GPUs, with the same global batch. Which part of a step halves?",
        "Computing",
        {
            "All of it": "Twice the GPUs, half the time.",
            "The exchange of gradients, since each GPU has half of the samples": "Gradients shrink with the samples.",
            "None of it": "The exchange is all that counts.",
        },
        "Each GPU has half of the samples, and as many gradients as before.",
    ),
    Question(
        "overlap",
        "Gradients are sent while backward goes on. Exchange takes half as long as backward. What is left to"
        " wait for?",
        "The gradients that are ready last",
        {
            "Nothing": "Overlap hides all communication.",
            "Half of the exchange": "Half is always exposed.",
            "All of it, since gradients are summed after backward": "An exchange starts when backward has ended.",
        },
        "They are ready when backward ends, and nothing is left to overlap with.",
    ),
    Question(
        "slow one",
        "One of a thousand GPUs becomes half as fast. All update synchronously. The run takes",
        "about twice as long",
        {
            "a thousandth longer": "The mean decides.",
            "as long as before, others take over": "Work moves to those who are free.",
            "a third longer": "A loss is divided among all.",
        },
        "In each step all wait for it.",
    ),
    Question(
        "small variations",
        "All GPUs are equal, but each step of each varies a little at random. With more GPUs, a step",
        "gets longer, since the slowest of more GPUs takes longer",
        {
            "stays, variations cancel": "The mean decides.",
            "gets shorter, the mean is more certain": "A larger sample has less spread.",
            "gets longer in proportion to the GPUs": "Variations add up.",
        },
        "A step lasts as long as its slowest GPU.",
    ),
    Question(
        "asynchronous",
        "With asynchronous updates more gradients a second are computed. The network therefore",
        "may learn more or less a second: gradients are of older weights",
        {
            "learns faster": "Asynchronous is faster, so it is better.",
            "learns nothing, gradients are wrong": "Stale gradients do not converge.",
            "learns as fast, only the order changes": "A gradient is as good for any weights.",
        },
        "Stale gradients tolerate only a smaller learning rate.",
    ),
    Question(
        "agreement",
        "After each step all replicas hold equal weights. The gradients",
        "may still all be wrong in the same way",
        {
            "are right": "If the replicas agree, the gradients are right.",
            "were equal before the exchange as well, or weights would differ": "Replicas compute the same.",
            "are right if the loss falls": "A falling loss proves the gradient.",
        },
        "Compare with one rank on the same batch.",
    ),
    Question(
        "larger batch",
        "Twice the batch, and a well-tuned rate for it. The number of steps to a given accuracy",
        "halves at first, and hardly falls beyond some batch",
        {
            "always halves": "A larger batch gives a better gradient, so steps fall in proportion.",
            "stays": "Each step learns equally much.",
            "grows beyond some batch: large batches do not generalize": "A large batch cannot reach the accuracy.",
        },
        "There is a critical batch.",
    ),
    Question(
        "learning rate",
        "Sixteen times the batch, sixteen times the learning rate, warmed up. Training",
        "works if sixteen small steps would have had nearly the same gradient",
        {
            "works, that is the rule": "Linear scaling of the rate always works.",
            "works if the warm-up is long enough to leave the steep start": "A long enough warm-up repairs it.",
            "works with the same rate only": "The rate belongs to the network, not to the batch.",
        },
        "That is what the derivation assumes.",
    ),
    Question(
        "peak",
        "A GPU with twice the peak FLOP/s, all else as before. A given layer is",
        "up to twice as fast, and not at all faster if it waits for memory or launches",
        {
            "twice as fast": "Peak FLOP/s predicts time.",
            "faster if it is large, since small ones wait for memory": "Memory-bound layers are the small ones.",
            "never faster": "All layers wait for memory.",
        },
        "Its arithmetic intensity decides.",
    ),
    Question(
        "small files",
        "GPUs wait for their images, each a small file. The file system delivers a hundredth of its bandwidth. You",
        "reduce the number of files that are opened",
        {
            "buy bandwidth": "I/O is bandwidth.",
            "start more readers on each node, to overlap the waits": "More readers always help.",
            "add nodes": "More nodes always help.",
        },
        "Each file costs operations of metadata servers, which are the limit.",
    ),
    Question(
        "cache",
        "Half of the data fits into a cache. Each epoch reads all of it once, in a new random order. At best"
        " the cache hits",
        "half of the reads",
        {
            "nearly all, with a clever policy": "A smarter cache helps random access more.",
            "none, since the order is random": "Random access cannot be cached.",
            "more in each epoch, as it learns": "A cache learns what is read.",
        },
        "Each sample is read once: only what stayed since the last epoch can hit.",
    ),
    Question(
        "pipeline",
        "A network is cut into eight equal stages on eight GPUs. One batch, in microbatches, is trained",
        "less than eight times as fast; how much depends on the microbatches",
        {
            "eight times as fast": "A pipeline with P stages is P times faster.",
            "as fast as on one GPU, since each stage waits for the one before it": "Stages compute one after another.",
            "less than eight times as fast, whatever the microbatches": "The bubble is a property of the stages.",
        },
        "Stages are idle while the pipeline fills and drains.",
    ),
    Question(
        "split or copy",
        "A network fits one GPU, and a larger batch still saves steps. To use a second GPU you",
        "give it a replica and samples of its own",
        {
            "split each layer over both, so that each computes half of it": "Model parallelism is for speed.",
            "put half of the layers on it": "A pipeline with P stages is P times faster.",
            "use it for the optimizer": "The optimizer takes half of a step.",
        },
        "Replicas exchange once per step; a split exchanges in every layer.",
    ),
    Question(
        "memory",
        "A network's weights take a tenth of a GPU's memory. Training it with a large batch",
        "may not fit: activations, gradients and optimizer state come on top",
        {
            "fits": "A model of 3 GB needs 3 GB.",
            "fits: with gradients and momentum it is three tenths, and activations are small": "Activations are small.",
            "fits if each layer fits": "Only one layer is in memory at a time.",
        },
        "Backward needs the activations of all layers, for every sample.",
    ),
    Question(
        "checkpoints",
        "A run on many nodes fails now and then. It should save its state",
        "at an interval that balances saving against lost work",
        {
            "as often as possible, so that as little as possible is lost": "Checkpoint as often as you can.",
            "once a day, failures are rare": "Failures are rare, so ignore them.",
            "only at the end of an epoch": "An epoch is the unit of training.",
        },
        "The root of twice the cost times the time between failures.",
    ),
    Question(
        "energy",
        "The same training on half as many GPUs takes nearly twice as long. Its energy",
        "changes little",
        {
            "halves": "Half the GPUs halve the energy.",
            "doubles": "Energy grows with the time.",
            "is the same to the last joule": "Only computing takes energy.",
        },
        "The work is the same; what differs is waiting, and what is only switched on.",
    ),
    Question(
        "waiting",
        "Ranks spend a third of their time in MPI calls. A network twice as fast",
        "saves next to nothing if they wait for a late rank",
        {
            "saves a sixth": "Communication time is network time.",
            "saves a third": "A faster network removes waits.",
            "makes it worse": "Faster messages congest the receiver.",
        },
        "Time in MPI is transfer and waiting; only one of them is the network's.",
    ),
    Question(
        "longest wait",
        "In each step one rank waits much longer than all others before the common exchange. You look at",
        "the rank that comes last",
        {
            "that rank, it is the slow one": "The rank that waits longest is the slow one.",
            "its link": "A long bar of MPI is a long transfer.",
            "the average over all ranks": "Balance the average and waits vanish.",
        },
        "Who waits longest came first.",
    ),
    Question(
        "sharded state",
        "A large language model fits on thousands of GPUs if each replica shards all of its state (FSDP), one sequence"
        " each, and gathers each block in a ring. Why does a step take longer than with split layers and a pipeline?",
        "A ring over thousands of GPUs pays a latency for each of them, for each block",
        {
            "What fits needs no other split, so the network must be faulty": "FSDP alone is enough if it fits.",
            "Sharded gradients are less exact, and a pipeline keeps them whole": "Sharding changes the result.",
            "A GPU computes a split layer at a higher rate": "Smaller matmuls run faster.",
        },
        "A ring has as many rounds as ranks. NCCL's PAT (2.23) needs lg p rounds and nearly closes the gap; one"
        " sequence per replica remains the limit.",
    ),
    Question(
        "inside the node",
        "Tensor, pipeline and data parallelism are combined; a node has fast links, the network between nodes is slow."
        " Inside the node goes",
        "tensor parallelism, which exchanges in every layer",
        {
            "data parallelism, since gradients are the most bytes": "The most bytes need the fastest link.",
            "the pipeline, since stages wait for each other": "A late message stops the whole pipeline.",
            "whichever comes first: all send the same in the end": "Bytes are bytes, whenever they are sent.",
        },
        "Nothing computes while a layer waits for its sum; gradients and stages can be overlapped.",
    ),
    Question(
        "experts",
        "A layer's feed-forward network becomes 16 experts of the same size; a router sends each token to one. Compared"
        " with before, a step needs",
        "much more memory, and about as much arithmetic",
        {
            "sixteen times the memory and the arithmetic": "More experts cost more arithmetic.",
            "the same memory, since a token meets one expert": "Experts that are not used need no memory.",
            "a sixteenth of the arithmetic": "Each expert has fewer tokens, so each token costs less.",
        },
        "All experts hold weights and state; a token is computed by one, as before.",
    ),
    Question(
        "uneven router",
        "Experts are spread over GPUs, and one GPU's experts get twice the mean number of tokens. A step",
        "waits for that GPU, in every layer with experts",
        {
            "is as long as before: the tokens are as many in all": "The mean decides.",
            "gets shorter, since the other GPUs have less to compute": "Less work for most is less time for all.",
            "waits once, at the update": "Ranks meet only when gradients are exchanged.",
        },
        "The tokens must come back before the next layer, so the busiest GPU sets the pace of each layer.",
    ),
    Question(
        "eight bits",
        "Linear layers compute in fp8, at twice the rate of bf16. A training step, which also exchanges gradients,",
        "gets shorter, but not by half",
        {
            "takes half of the time": "fp8 halves the step.",
            "takes a quarter of the time: half the bytes at twice the rate": "Gains of bytes and rate multiply.",
            "takes as long: weights are still updated in fp32": "The slowest number format decides.",
        },
        "Only the products gain; exchanges, attention and casts stay.",
    ),
    Question(
        "token by token",
        "One user gets an answer from a language model on one GPU. A GPU with twice the FLOP/s and the same memory"
        " bandwidth writes it",
        "about as fast as before",
        {
            "twice as fast": "Peak FLOP/s predicts time.",
            "a third faster: half of the time is arithmetic": "Both count equally.",
            "more slowly, since faster arithmetic has to wait": "Faster arithmetic waits longer for memory.",
        },
        "Each token reads all weights from memory; the arithmetic of one token is little.",
    ),
    Question(
        "many users",
        "A GPU writes answers for eight users at once instead of one. Each user's next token comes",
        "nearly as soon as for one user alone",
        {
            "after eight times as long": "A larger batch makes every token slower in proportion.",
            "in an eighth of the time, since users share the work": "A batch divides the time of a step.",
            "when the longest of the eight answers has ended": "A batch returns its answers together.",
        },
        "The weights are read once for all eight, and reading them is most of the time.",
    ),
    Question(
        "what limits users",
        "The weights of a language model take half of a GPU's memory. What limits the number of users it can serve"
        " at once?",
        "The keys and values that each of their conversations stores",
        {
            "Its arithmetic, of which each user takes a part": "A request that waits, waits for arithmetic.",
            "Nothing but patience, since all users share the same weights": "Weights are all that fills memory.",
            "The size of the weights, which each user needs a copy of": "Each user has a copy of the model.",
        },
        "The KV cache grows with each token of each conversation, and must stay in memory until the answer ends.",
    ),
]
