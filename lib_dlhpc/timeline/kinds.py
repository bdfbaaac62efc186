"""Streams and kinds of events."""

STREAMS = ("compute", "communication", "input", "checkpoint", "host")
KINDS = (
    *("forward", "backward", "update", "communication", "wait", "input", "checkpoint"),
    *("bubble", "region", "send", "receive", "collective", "kernel", "step"),
)
