"""How nccl/rank0.json.gz was made of nccl_data.json.gz in tests/data/nccl_parser_config of HolisticTraceAnalysis.

Commit f4d0062 (MIT license, see THIRD_PARTY.md): ResNet-50 on two A100, rank 0, NCCL 2.17.1. python make_nccl.py FILE
keeps the accelerator's events, the steps and what the trace tells about its job; of arguments those of collectives.
"""

import gzip
import json
import sys

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
GIVEN = ("Collective name", "In msg nelems", "dtype", "Group size", "Process Group Name")
ABOUT = ("schemaVersion", "distributedInfo", "displayTimeUnit", "baseTimeNanoseconds")

with gzip.open(sys.argv[1], "rt") as file:
    trace = json.load(file)
events = []
for event in trace["traceEvents"]:
    step = event.get("cat") == "user_annotation" and event["name"].startswith("ProfilerStep#")
    if event.get("ph") == "X" and (step or event.get("cat") in DEVICE):
        given = {key: value for key, value in event.get("args", {}).items() if key in GIVEN}
        kept = {key: event[key] for key in ("ph", "cat", "name", "pid", "tid", "ts", "dur")}
        kept["name"] = kept["name"][:60]
        events.append(kept | ({"args": given} if "Collective name" in given else {}))
about = {key: trace[key] for key in ABOUT}
with gzip.open("rank0.json.gz", "wt", compresslevel=9) as file:
    json.dump(about | {"traceEvents": events}, file, separators=(",", ":"))
