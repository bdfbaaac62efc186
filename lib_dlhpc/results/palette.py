"""Colors of Okabe and Ito (2008), distinguishable with all common kinds of color vision."""

# Terms of a step, in the order in which they are stacked.
TERMS = {
    "forward": "#56b4e9",
    "backward": "#0072b2",
    "update": "#009e73",
    "waiting for the slowest": "#999999",
    "exposed communication": "#d55e00",
    "pipeline bubble": "#f0e442",
    "input stall": "#e69f00",
    "checkpoint": "#cc79a7",
}
OTHER = "#000000"  # a term without a color
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#000000")
# Kinds of events of a timeline.
KINDS = {
    "forward": TERMS["forward"],
    "backward": TERMS["backward"],
    "update": TERMS["update"],
    "communication": TERMS["exposed communication"],
    "wait": "#cccccc",
    "bubble": TERMS["pipeline bubble"],
    "input": TERMS["input stall"],
    "checkpoint": TERMS["checkpoint"],
    "region": "#cfe3ef",
    "send": "#f5c18a",
    "receive": "#8a3d00",
    "collective": TERMS["exposed communication"],
}
