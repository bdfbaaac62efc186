"""The concept test, before and after the course: 28 items, none of which needs a formula.

The first ten are for half a day: allreduce and data parallelism. The first twenty are for a course without modules 12
and 13, the last eight are about these: language models in training and in service. Items are not in the exam; no
answers are given in between.
"""

from lib_dlhpc.teaching.questions import Question

QUESTIONS = [
    Question(
        "short messages",
        "Many ranks allreduce one number each. Which property of the algorithm decides how long it takes?",
        "How many rounds follow one another",
        {
            "How many bytes each rank has to send": "Bandwidth is what matters.",
            "How fast each rank adds": "Adding is the work of an allreduce.",
            "Whether ranks form a ring": "Ring is the best allreduce.",
        },
        "Each round pays the latency, and there is next to nothing to send.",
    ),
    Question(
        "long messages",
        "A few ranks allreduce buffers of a gigabyte. Which algorithm should you avoid?",
        "One in which ranks send the whole buffer in every round",
        {
            "One with many rounds": "Latency decides at any size.",
            "One that cuts the buffer into pieces and sends them to different ranks": "Pieces cost more than wholes.",
            "Any but a ring": "Ring is the best allreduce.",
        },
        "Bytes decide: if pieces are reduced on their way, each rank sends each byte only about twice.",
    ),
    Question(
        "twice the ranks",
        "Data-parallel training moves to twice the GPUs, with the same global batch. Which part of a step halves?",
        "Computing",
        {
            "All of it": "Twice the GPUs, half the time.",
            "The exchange of gradients, since each GPU has half of the samples": "Gradients shrink with the samples.",
            "None of it": "Only the exchange counts.",
        },
        "Each GPU has half as many samples, but as many gradients as before.",
    ),
    Question(
        "overlap",
        "The allreduce of gradients overlaps with backward, and takes half as long. What does a step still wait"
        " for when backward ends?",
        "The gradients that are ready last",
        {
            "Nothing more": "Overlap hides all communication.",
            "Half of the allreduce": "Half is always exposed.",
            "The whole allreduce, since it sums finished gradients": "An exchange starts when backward has ended.",
        },
        "They are ready only when backward ends, so nothing is left to overlap with.",
    ),
    Question(
        "slow one",
        "One of a thousand GPUs becomes half as fast. Updates are synchronous. The run then takes",
        "about twice as long",
        {
            "a thousandth longer": "The mean decides.",
            "as long as before: others take over its work": "Work moves to ranks that are free.",
            "about a third longer": "A delay is divided among all ranks.",
        },
        "In each step, all other GPUs wait for the slow one.",
    ),
    Question(
        "small variations",
        "All GPUs are equal, but their step times vary a little at random. With more GPUs, a synchronous step",
        "gets longer, since the slowest of more GPUs takes longer",
        {
            "takes as long as before, since variations cancel": "The mean decides.",
            "gets shorter, since the mean is more certain": "A larger sample has less spread.",
            "gets longer in proportion to the GPUs": "Variations add up.",
        },
        "A step lasts as long as its slowest GPU.",
    ),
    Question(
        "asynchronous",
        "With asynchronous updates, workers compute more gradients per second. After an hour the loss",
        "is lower or higher, as gradients come from older weights",
        {
            "is lower, since nobody has waited": "Asynchronous is faster, so it is better.",
            "has not fallen, since gradients are outdated": "Stale gradients do not converge.",
            "is lower by as much as there are more gradients": "A gradient is as good for any weights.",
        },
        "There are more gradients, but they come from older weights, which tolerate only a smaller learning rate.",
    ),
    Question(
        "agreement",
        "After each step, all replicas hold bitwise equal weights. What do you know about the gradients?",
        "All replicas applied the same ones, right or wrong",
        {
            "They are right": "If the replicas agree, the gradients are right.",
            "They were equal before the allreduce as well": "Replicas compute the same.",
            "They are right, if the loss falls as well": "A falling loss proves the gradient.",
        },
        "Agreement proves nothing more; compare with one rank on the same batch.",
    ),
    Question(
        "larger batch",
        "You double the batch and tune the learning rate for it. The number of steps to a given accuracy",
        "halves at first, and beyond some batch hardly falls",
        {
            "halves, at any batch": "A larger batch gives a better gradient, so steps fall in proportion.",
            "stays the same": "Each step learns the same amount.",
            "grows beyond some batch: large batches do not generalize": "A large batch cannot reach the accuracy.",
        },
        "Beyond the critical batch, more samples save hardly any steps.",
    ),
    Question(
        "learning rate",
        "You train with sixteen times the batch and, after a warm-up, sixteen times the learning rate. This",
        "works if sixteen small steps would have had nearly the same gradient",
        {
            "works: rate and batch grow together": "Linear scaling of the rate always works.",
            "works if the warm-up is long enough to leave the steep start": "A long enough warm-up repairs it.",
            "works if the rate stays as it was": "The rate belongs to the network, not to the batch.",
        },
        "The derivation of linear scaling assumes just that.",
    ),
    Question(
        "peak",
        "A GPU has twice the peak FLOP/s of another, and the same memory bandwidth. On the faster GPU, a given layer"
        " is",
        "as fast if it waits for memory or launches, else up to twice as fast",
        {
            "twice as fast": "Peak FLOP/s predicts time.",
            "twice as fast if it is large: small layers wait for memory": "Memory-bound layers are the small ones.",
            "as fast, since layers wait for memory": "All layers wait for memory.",
        },
        "The layer's arithmetic intensity decides.",
    ),
    Question(
        "small files",
        "GPUs wait for images, each a small file; the file system delivers a hundredth of its bandwidth. What helps?",
        "Fewer files, each with many images",
        {
            "More bandwidth": "I/O is bandwidth.",
            "More readers on each node": "More readers always help.",
            "More nodes": "More nodes always help.",
        },
        "Each file costs metadata operations, whose servers are the limit.",
    ),
    Question(
        "cache",
        "Half of the data fits into a cache. Each epoch reads all data once, in a new random order. What is the"
        " highest hit rate that the cache can have?",
        "Half of the reads",
        {
            "Nearly all reads, with a clever policy": "A smarter cache helps random access more.",
            "Close to zero, since the order is random": "Random access cannot be cached.",
            "More in each epoch, as it learns the order": "A cache learns what is read.",
        },
        "Each sample is read once per epoch: only samples that stayed in the cache since the last epoch can be hits.",
    ),
    Question(
        "pipeline",
        "A network is cut into eight equal stages on eight GPUs, and a batch into microbatches. A step is",
        "nearly eight times as fast, with enough microbatches",
        {
            "eight times as fast, with two or more microbatches": "A pipeline with P stages is P times faster.",
            "as fast as on one GPU: each stage waits for the one before": "Stages compute one after another.",
            "about four times as fast, with few or many microbatches": "The bubble is a property of the stages.",
        },
        "Stages are idle while the pipeline fills and drains.",
    ),
    Question(
        "split or copy",
        "A network fits on one GPU, and a larger batch still saves steps. How do you use a second GPU?",
        "It gets its own replica and its own samples",
        {
            "Each layer is split over both GPUs": "Model parallelism is for speed.",
            "It gets half of the layers, as a second stage": "A pipeline with P stages is P times faster.",
            "It runs the optimizer": "The optimizer takes half of a step.",
        },
        "Replicas exchange once per step; a split exchanges in every layer.",
    ),
    Question(
        "memory",
        "A network's weights take a tenth of a GPU's memory. How much does training with a large batch need?",
        "More than the GPU has, if activations are many",
        {
            "About that tenth": "A model of 3 GB needs 3 GB.",
            "Three tenths, with gradients and momentum": "Activations are small.",
            "Twice the largest layer, one at a time": "Only one layer is in memory at a time.",
        },
        "Backward needs the activations of all layers, for every sample, in addition to gradients and optimizer"
        " state.",
    ),
    Question(
        "checkpoints",
        "A run on many nodes fails now and then. How often should it save its state?",
        "So often that saving costs about as much as lost work",
        {
            "As often as it can, to lose as little work as possible": "Checkpoint as often as you can.",
            "Once a day, since failures are rare": "Failures are rare, so ignore them.",
            "Once at the end of each epoch": "An epoch is the unit of training.",
        },
        "The best interval is the root of twice the cost times the mean time between failures.",
    ),
    Question(
        "energy",
        "The same training takes nearly twice as long on half the GPUs. Its energy",
        "falls a little",
        {
            "falls by half": "Half the GPUs halve the energy.",
            "nearly doubles": "Energy grows with the time.",
            "is the same, joule for joule": "Only computing takes energy.",
        },
        "The work is the same; what differs is the energy of waiting and of idle hardware.",
    ),
    Question(
        "waiting",
        "Ranks spend a third of their time in MPI calls, where most wait for a late rank. A network twice as fast",
        "saves next to nothing",
        {
            "saves a sixth of the time": "Communication time is network time.",
            "saves a third of the time": "A faster network removes waits.",
            "makes the run slower": "Faster messages congest the receiver.",
        },
        "Time in MPI is transfer and waiting; only transfer depends on the network.",
    ),
    Question(
        "longest wait",
        "In each step one rank waits much longer in the allreduce than all others. What do you look at?",
        "The rank that arrives last",
        {
            "That rank, since it is slow": "The rank that waits longest is the slow one.",
            "The link of that rank": "A long bar of MPI is a long transfer.",
            "The average over all ranks": "Balance the average and waits vanish.",
        },
        "The rank that waits longest arrived first.",
    ),
    Question(
        "sharded state",
        "A large language model fits on thousands of GPUs if all of its state is sharded over all of them (FSDP),"
        " with one sequence per GPU and each block gathered in a ring. Why does a step take longer than with split"
        " layers and a pipeline?",
        "A ring over thousands of GPUs pays a latency for each of them, for each block",
        {
            "Its network is too slow: what fits needs no other split": "FSDP alone is enough if it fits.",
            "Sharded gradients are less exact, and a pipeline keeps them whole": "Sharding changes the result.",
            "A GPU computes a split layer at a higher rate": "Smaller matmuls run faster.",
        },
        "A ring has about as many rounds as ranks. NCCL's PAT (2.23) needs lg p rounds and nearly closes the gap; one"
        " sequence per replica remains the limit.",
    ),
    Question(
        "inside the node",
        "Tensor, pipeline and data parallelism are combined; links within a node are fast, and the network between"
        " nodes is slow. Which kind of parallelism goes inside the node?",
        "Tensor parallelism, which exchanges in every layer",
        {
            "Data parallelism, since gradients are the most bytes": "The most bytes need the fastest link.",
            "The pipeline, since stages wait for each other": "A late message stops the whole pipeline.",
            "Any of them: the bytes of a step are the same": "Bytes are bytes, whenever they are sent.",
        },
        "Nothing computes while a layer waits for its allreduce; exchanges of gradients and between stages can be"
        " overlapped.",
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
        "All experts hold weights and state; each token is processed by one network of the same size, as before.",
    ),
    Question(
        "uneven router",
        "Experts are spread over GPUs, and the experts of one GPU get twice the mean number of tokens. A step",
        "waits for that GPU, in every layer with experts",
        {
            "takes as long as before: there are as many tokens": "The mean decides.",
            "gets shorter, since the other GPUs have less to compute": "Less work for most GPUs is less time for all.",
            "waits once, at the update": "Ranks meet only when gradients are exchanged.",
        },
        "The tokens must return before the next layer, so each layer takes as long as its busiest GPU.",
    ),
    Question(
        "eight bits",
        "Linear layers compute in fp8, at twice the rate of bf16. A training step, which also exchanges gradients,",
        "gets shorter, but not by half",
        {
            "takes half of the time": "fp8 halves the step.",
            "takes a quarter of the time: half the bytes at twice the rate": "The gains in bytes and in rate multiply.",
            "takes as long: weights are still updated in fp32": "The slowest number format decides.",
        },
        "Only the matmuls gain; exchanges, attention and casts take as long as before.",
    ),
    Question(
        "token by token",
        "A language model on one GPU answers one user. A GPU with twice the FLOP/s and the same memory bandwidth"
        " decodes",
        "about as fast as before",
        {
            "twice as fast": "Peak FLOP/s predicts time.",
            "a third faster: half of the time is arithmetic": "Arithmetic and memory count equally.",
            "more slowly, since faster arithmetic has to wait": "Faster arithmetic waits longer for memory.",
        },
        "Each token reads all weights from memory; one token needs little arithmetic.",
    ),
    Question(
        "many users",
        "A GPU decodes the answers to eight users at once instead of one. Each user's next token comes",
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
            "Its arithmetic, of which each user needs a part": "A request that waits is waiting for arithmetic.",
            "The rate of requests, since all users share the weights": "Only the weights fill memory.",
            "The size of the weights, which each user needs a copy of": "Each user has a copy of the model.",
        },
        "The KV cache grows with each token of each conversation, and must stay in memory until the answer ends.",
    ),
]
