"""One color for each cause of time, in every chart of every page; Okabe and Ito's (2008), and Tol's for two more.

Whatever a color says, a word or a hatching says as well.
"""

FORWARD, BACKWARD, UPDATE = "#56b4e9", "#0072b2", "#004a70"
GRADIENTS, COLLECTIVES, NEIGHBORS, EXPERTS = "#e69f00", "#d55e00", "#cc79a7", "#882255"
CONTEXT = "#aa4499"
WEIGHTS_LATER = "#3f97cc"  # of BACKWARD: weight gradients that are computed apart
STAGES = "#e0b0ca"  # of NEIGHBORS: stage to stage, where halos are in the same chart
REPEATED = BACKWARD  # hatched, as recomputation is: work that is lost with a failure and done again
INPUT, CHECKPOINT, BUBBLE, IDLE = "#009e73", "#44aa99", "#f0e442", "#a9b0b8"
IDLE_LIGHT, IDLE_DARK = "#d3d8dd", "#737c86"  # of IDLE: other kinds of waiting in one chart

# Terms of a step, in the order in which they are stacked.
TERMS = {
    "forward": FORWARD,
    "backward": BACKWARD,
    "update": UPDATE,
    "waiting for the slowest": IDLE,
    "exposed communication": GRADIENTS,
    "pipeline bubble": BUBBLE,
    "input stall": INPUT,
    "checkpoint": CHECKPOINT,
}
# Memory has the color of what causes it.
MEMORY = {
    "weights": BACKWARD,
    "master weights": WEIGHTS_LATER,
    "gradients": GRADIENTS,
    "optimizer state": UPDATE,
    "activations": FORWARD,
    "working set": "#a6d6f2",
    "input batch": INPUT,
    "communication buffer": COLLECTIVES,
    "driver and workspace": IDLE,
}
OTHER = "#000000"  # a term without a color
ENGINE = "currentColor"  # predicted, simulated and measured, where each is a point: symbol and fill distinguish them
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#000000")
# Kinds of events of a timeline.
KINDS = {
    "forward": FORWARD,
    "backward": BACKWARD,
    "weight gradients": WEIGHTS_LATER,
    "update": UPDATE,
    "communication": GRADIENTS,
    "wait": IDLE,
    "bubble": BUBBLE,
    "input": INPUT,
    "checkpoint": CHECKPOINT,
    "region": "#cfe3ef",
    "send": "#f5c18a",
    "receive": "#8a3d00",
    "collective": COLLECTIVES,
}
