"""Traces of torch.profiler become timelines: by category and arguments, several ranks on one clock."""

import gzip
import json
import random
import re
from collections import Counter

import pytest

from lib_dlhpc import SpecError
from lib_dlhpc.cli import main
from lib_dlhpc.timeline.analysis.analysis import analyze
from lib_dlhpc.timeline.formats import read

BASE = 1_700_000_000_123_456_789  # ns since 1970: more digits than a float has


def x(category, name, ts, dur, pid=0, tid=7, **args):
    event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur}
    return event | ({"args": args} if args else {})


def collective(name, ts, dur, kernel="ncclDevKernel_AllReduce_Sum_f32_RING_LL", **args):
    told = {"In msg nelems": 1000, "Out msg nelems": 1000, "Group size": 2, "dtype": "Float"}
    told |= {"Process Group Name": "0", "Process Group Description": "default_pg"}
    told |= {"Process Group Ranks": "[0, 1]", "stream": 20}
    return x("kernel", kernel, ts, dur, tid=20, **{"Collective name": name}, **(told | args))


def trace(*events, rank=0, world=2, base=BASE, **about):
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "a card"}]}
    if rank is not None:
        head["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world}
    head |= {"displayTimeUnit": "ms", "baseTimeNanoseconds": base} | about
    labels = [
        {
            "name": "process_name",
            "ph": "M",
            "ts": 0,
            "pid": 0,
            "tid": 0,
            "args": {"name": "python"},
        },
        {
            "name": "Iteration Start",
            "ph": "i",
            "s": "g",
            "pid": "Traces",
            "tid": "Trace",
            "ts": 1.5,
        },
        {"ph": "s", "id": 3, "pid": 0, "tid": 1, "ts": 2.25, "cat": "ac2g", "name": "ac2g"},
    ]
    return head | {"traceEvents": labels + list(events), "traceName": "rank.json"}


STEP = [
    x("user_annotation", "ProfilerStep#1", 100.000, 900.5, pid=40, tid=40),
    x("cpu_op", "aten::linear", 110.125, 50, pid=40, tid=40, **{"External id": 5}),
    x("cuda_runtime", "cudaLaunchKernel", 120, 5.5, pid=40, tid=40, correlation=9),
    x("python_function", "train.py(3): step", 101, 800, pid=40, tid=40),
    x("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 130, 20, tid=9, bytes=4096),
    x("gpu_memset", "Memset (Device)", 150, 2),
    x("kernel", "ampere_sgemm_128x64_tn", 160.001, 300.250, stream=7),
    x("kernel", "my_nccl_lookalike_kernel", 470, 10, stream=7),
    collective("allreduce", 500, 100.999, Seq=4),
]


def save(folder, name, content):
    path = folder / name
    text = json.dumps(content)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def rows(table, *fields):
    return [tuple(getattr(event, field) for field in fields) for event in table]


def test_categories_and_arguments_say_what_an_event_is(tmp_path):
    said = []
    table = read(save(tmp_path, "rank0.pt.trace.json", trace(*STEP, world=1)), tell=said.append)
    assert said == [] and (table.ranks, table.source, len(table)) == (1, "measured", len(STEP))
    assert set(rows(table, "stream", "kind", "name")) == {
        ("host", "step", "ProfilerStep#1"),
        ("host", "region", "aten::linear"),
        ("host", "region", "cudaLaunchKernel"),
        ("host", "region", "train.py(3): step"),
        ("input", "region", "Memcpy HtoD (Pinned -> Device)"),
        ("compute", "kernel", "Memset (Device)"),
        ("compute", "kernel", "ampere_sgemm_128x64_tn"),
        ("compute", "kernel", "my_nccl_lookalike_kernel"),
        ("communication", "collective", "allreduce"),
    }
    (talk,) = [event for event in table if event.stream == "communication"]
    assert (talk.bytes, talk.peer, talk.comm) == (4000, -1, 0)


def old_form(text):
    """Return a trace as Kineto wrote it before it had a base time: all digits in ts."""
    micro, nano = divmod(BASE, 1000)

    def whole(found):
        at = round(float(found[1]) * 1000) + nano
        return f'"ts": {micro + at // 1000}.{at % 1000:03d}'

    return re.sub(r'"ts": ([0-9.]+)', whole, text.replace(f'"baseTimeNanoseconds": {BASE}, ', ""))


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        ("Float", 4),
        ("float32", 4),
        ("c10::BFloat16", 2),
        ("Float8_e4m3fn", 1),
        ("Long", 8),
        ("Byte", 1),
    ],
)
def test_bytes_are_those_of_the_elements(tmp_path, dtype, size):
    call = collective("allreduce", 0, 1, dtype=dtype, Seq=0)
    (event,) = read(save(tmp_path, "a.json", trace(call, world=1)))
    assert event.bytes == 1000 * size


@pytest.mark.parametrize("form", [str, old_form])
def test_times_are_exact_to_the_nanosecond_and_begin_at_zero(tmp_path, form):
    (tmp_path / "a.json").write_text(form(json.dumps(trace(*STEP, world=1))))
    table = read(tmp_path / "a.json")
    (kernel,) = [event for event in table if event.name.startswith("ampere")]
    assert (round(kernel.start * 1e9), round(kernel.stop * 1e9)) == (60_001, 360_251)
    assert table.start.min() == 0


def test_ranks_of_several_files_share_a_clock_and_their_calls_match(tmp_path):
    later = [event | {"ts": event["ts"] + 10} for event in STEP]
    one = save(tmp_path, "b.json.gz", trace(*later, rank=1, base=BASE + 5_000))
    zero = save(tmp_path, "a.json", trace(*STEP))
    said = []
    for order in ((one, zero), (zero, one)):
        table = read(*order, tell=said.append)
        talks = [event for event in table if event.kind == "collective"]
        assert [event.rank for event in talks] == [0, 1]
        assert talks[0].match == talks[1].match >= 0
        assert talks[1].start - talks[0].start == pytest.approx(15e-6, abs=1e-12)
    assert said == []


def test_without_a_number_collectives_match_by_counting_only_if_all_have_as_many(tmp_path):
    calls = [collective("allreduce", 10 * n, 5) for n in range(3)]
    a, b = save(tmp_path, "a.json", trace(*calls)), save(tmp_path, "b.json", trace(*calls, rank=1))
    assert rows(read(a, b), "rank", "match") == [(r, n) for r in (0, 1) for n in range(3)]
    b = save(tmp_path, "b.json", trace(*calls[1:], rank=1))
    said = []
    assert set(rows(read(a, b, tell=said.append), "match")) == {(-1,)}
    assert said == ["5 communications without match: other ranks' files have more, or none."]


def test_a_window_that_began_later_still_matches_by_number(tmp_path):
    calls = [collective("allreduce", 10 * n, 5, Seq=n) for n in range(3)]
    a, b = (
        save(tmp_path, "a.json", trace(*calls)),
        save(tmp_path, "b.json", trace(*calls[1:], rank=1)),
    )
    first, *others = rows(read(a, b), "rank", "match")
    assert [match for _, match in others[:2]] == [match for _, match in others[2:]]
    assert first[1] not in {match for _, match in others}


def test_process_groups_are_communicators_and_only_their_members_match(tmp_path):
    def of(group, ranks, ts):
        given = {"Process Group Name": group, "Process Group Ranks": str(ranks), "Seq": 1}
        return collective("_allgather_base", ts, 5, **given, **{"Process Group Description": "tp"})

    files = [
        save(tmp_path, f"{rank}.json", trace(of("7", pair, rank), rank=rank, world=4))
        for rank, pair in enumerate([[0, 1], [0, 1], [2, 3], [2, 3]])
    ]
    found = rows(read(*files), "rank", "comm", "match")
    assert [comm for _, comm, _ in found] == [1, 1, 2, 2]
    assert found[0][2] == found[1][2] != found[2][2] == found[3][2]


def test_sends_and_receives_know_their_other_end(tmp_path):
    two = {"Dst Rank": 1, "dtype": "BFloat16"}
    sends = [collective("send", 10 * n, 5, **two, Seq=n) for n in (1, 2)]
    receives = [
        collective("recv", 10 * n + 1, 9, **{"Src Rank": 0}, dtype="BFloat16") for n in (1, 2)
    ]
    a = save(tmp_path, "a.json", trace(*sends))
    b = save(tmp_path, "b.json", trace(*receives, rank=1))
    assert rows(read(a, b), "rank", "kind", "peer", "bytes", "match") == [
        (0, "send", 1, 2000, 0),
        (0, "send", 1, 2000, 1),
        (1, "receive", 0, 2000, 0),
        (1, "receive", 0, 2000, 1),
    ]


def gloo(name, ts, dur, *, shapes=True, tid=77):
    told = {"External id": 9, "Record function id": 0, "Ev Idx": 3}
    if shapes:
        told |= {"Input Dims": [[50, 20]], "Input type": ["float"], "Concrete Inputs": [""]}
    return x("user_annotation", f"gloo:{name}", ts, dur, pid=1, tid=tid, **told)


def on_host(*events, rank=0, groups=1):
    about = {"backend": "gloo", "rank": rank, "world_size": 2, "pg_count": groups}
    return trace(*events, rank=rank, deviceProperties=[], distributedInfo=about)


STEPS_OF_GLOO = [
    x("cpu_op", "aten::mm", 100, 40, pid=1, tid=1),
    x("cpu_op", "c10d::allreduce_", 140, 3, pid=1, tid=1),
    gloo("all_reduce", 141, 60),
    gloo("all_reduce", 150, 70, tid=78),  # gloo has several threads
    gloo("barrier", 300, 5, shapes=False),
    gloo("send", 400, 2),
]


def test_collectives_of_gloo_are_those_that_it_annotates_on_its_threads(tmp_path):
    files = [save(tmp_path, f"{rank}.json", on_host(*STEPS_OF_GLOO, rank=rank)) for rank in (0, 1)]
    table = read(*files)
    talks = [event for event in table if event.stream == "communication" and event.rank == 1]
    assert rows(talks, "kind", "name", "bytes", "match") == [
        ("collective", "all_reduce", 4000, 0),
        ("collective", "all_reduce", 4000, 1),
        ("collective", "barrier", 0, 2),
        ("communication", "send", 4000, -1),  # to whom is not said
    ]
    assert {event.name for event in table if event.stream == "compute"} == {
        "aten::mm",
        "c10d::allreduce_",
    }


@pytest.mark.parametrize("about", ["before the events", "after the events"])
def test_of_several_process_groups_gloo_does_not_say_which(tmp_path, about):
    files = []
    for rank in (0, 1):
        told = on_host(*STEPS_OF_GLOO, rank=rank, groups=2)
        if about == "after the events":
            told["distributedInfo"] = told.pop("distributedInfo")
        files.append(save(tmp_path, f"{rank}.json", told))
    assert set(rows(read(*files), "match")) == {(-1,)}


@pytest.mark.parametrize("named", ["on the host", "on a card"])
def test_where_calls_say_their_names_gloo_s_are_no_second_ones(tmp_path, named):
    """A run with cards may have gloo for what lies on the host."""
    call = collective("allreduce", 139, 5, Seq=1)
    if named == "on the host":
        call |= {"cat": "cpu_op", "name": "record_param_comms"}
    table = read(save(tmp_path, "0.json", on_host(*STEPS_OF_GLOO, call)))
    talks = [event.name for event in table if event.stream == "communication"]
    assert talks == ["allreduce"]


@pytest.mark.parametrize(
    "said",
    [{"Input Dims": 3}, {"Input Dims": [[-1]]}, {"Input Dims": [["n"]]}, {"Input type": [None]}],
)
def test_what_gloo_says_of_shapes_may_be_anything(tmp_path, said):
    event = gloo("all_reduce", 10, 5)
    event["args"] |= said
    (found,) = read(save(tmp_path, "0.json", on_host(event)))
    assert (found.kind, found.bytes) == ("collective", 0)


def test_of_a_real_run_with_gloo_the_late_rank_is_found(repository):
    """See tests/data/kineto/make.py: rank 1 is idle for 16 times 20 ms, and a little more than it was asked."""
    table = read(*sorted((repository / "tests" / "data" / "kineto").glob("*.json")))
    talks = table.select(table.where("communication"))
    names = [talks.names[name] for name in talks.name[talks.rank == 0]]
    assert Counter(names) == {"all_reduce": 16} | dict.fromkeys(
        ("all_gather", "barrier", "broadcast", "send"), 1
    )
    (found,) = (each for each in analyze(table).findings if each.kind == "wait at collective")
    assert (found.rank, found.seconds) == (1, pytest.approx(16 * 0.020, rel=0.1))


def test_older_kernels_are_known_by_their_name_and_that_is_reported(tmp_path):
    old = x("kernel", "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", 5, 10, tid=20)
    path, said = save(tmp_path, "a.json", trace(old, world=1)), []
    (event,) = read(path, tell=said.append)
    assert (event.stream, event.kind, event.match) == ("communication", "communication", -1)
    assert said == [f"{path}: 1 kernel without 'Collective name' taken for communication by name."]


def test_without_an_accelerator_the_host_computes(tmp_path):
    call = {"Collective name": "allreduce", "In msg nelems": 10, "dtype": "Double", "Group size": 1}
    events = [
        x("cpu_op", "aten::mm", 0, 10, pid=4, tid=4),
        x("cpu_op", "record_param_comms", 10, 2, pid=4, tid=4, **call),
    ]
    said = []
    path = save(tmp_path, "cpu.json", trace(*events, rank=None))
    table = read(path, tell=said.append)
    assert rows(table, "stream", "kind", "name", "bytes") == [
        ("compute", "kernel", "aten::mm", 0),
        ("communication", "collective", "allreduce", 80),
    ]
    assert said == [f"{path}: does not state its rank (distributedInfo): taken as rank 0."]


def test_what_is_left_out_is_reported(tmp_path):
    events = [
        x("gpu_user_annotation", "step", 0, 10),
        x("brand_new", "?", 0, 10),
        x("brand_new", "?", 1, 10),
        collective("allreduce", 5, 5, dtype="Quaternion", Seq=1),
    ]
    path, said = save(tmp_path, "a.json", trace(*events, world=4)), []
    (event,) = read(path, tell=said.append)
    assert event.bytes == 0
    assert said == [
        f"{path}: left out: 1 event of category gpu_user_annotation, a copy of the host's.",
        f"{path}: left out: 2 events of category brand_new.",
        f"{path}: 1 communication of dtype Quaternion: bytes not known.",
        "Of 4 ranks these have no file, and no events: 1, 2, 3.",
    ]


def broken(**changed):
    return trace(STEP[6] | changed)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (broken(ts=None), "event 3: ts = None: expected a number of microseconds"),
        (broken(ts="5"), "event 3: ts = '5'"),
        (broken(ts=10**30), r"event 3: ts = 1\.00e\+30: too far from 0"),
        (broken(ts=9 * 10**17), "event 3: "),
        (broken(ts=4 * 10**15), "event 3: from 5700000000123456789 to .* ns: legal: to 46116"),
        (broken(dur=4 * 10**15), "event 3: from .* to 5700000000.* ns: legal: to 46116"),
        (
            trace(STEP[6] | {"ts": -(4 * 10**15)}, STEP[6] | {"ts": 4 * 10**15}, base=0),
            r"start = 4000000000000000000, 8e\+18 from the first: legal",
        ),
        (broken(dur=[]), r"event 3: dur = \[\]"),
        (trace(STEP[6], base="now"), "event 3: baseTimeNanoseconds = 'now'"),
        (trace(rank=-1), "distributedInfo: rank -1 of 2"),
        (trace(rank=0, world=10**12), "distributedInfo: rank 0 of 1000000000000"),
        (trace(rank=2, world=2), "distributedInfo: rank 2 of 2: expected a rank from 0 on"),
        (trace(rank=0, world=-5), "distributedInfo: rank 0 of -5"),
        (trace(rank=True), "distributedInfo: rank True of 2"),
        (trace() | {"traceEvents": 5}, "no list 'traceEvents'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_file_and_place(tmp_path, content, why):
    path = save(tmp_path, "run.json", content)
    with pytest.raises(SpecError, match=why) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: ")


def test_two_files_of_a_rank_or_of_two_programs_are_refused(tmp_path):
    a, b = (save(tmp_path, name, trace(*STEP)) for name in ("a.json", "b.json"))
    with pytest.raises(
        SpecError, match=r"b\.json: is from rank 0, as is .*a\.json; expected one file per rank"
    ):
        read(a, b)
    assert main(["trace", "convert", str(a), str(tmp_path / "ours.json")]) == 0
    with pytest.raises(SpecError, match=r"ours\.json: has all its ranks"):
        read(a, tmp_path / "ours.json")
    assert main(["trace", "convert", str(a), str(tmp_path / "ours.npz")]) == 0
    with pytest.raises(SpecError, match=r"ours\.npz: several files are traces of torch\.profiler"):
        read(a, tmp_path / "ours.npz")


def test_convert_takes_the_files_of_several_ranks(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for rank in (0, 1):
        save(tmp_path, f"{rank}.json", trace(*STEP, rank=rank))
    assert main(["trace", "convert", "0.json", "1.json", "both.npz"]) == 0
    assert capsys.readouterr().err == f"both.npz: {2 * len(STEP)} events of 2 ranks.\n"
    assert sorted(read("both.npz")) == sorted(read("0.json", "1.json"))


def planted(folder, steps, buckets):
    """The files of two ranks, 15% of jitter; rank 1 computes 30% longer, then all meet in each bucket."""
    rng, clock, events = random.Random(steps), 100.0, ([], [])
    for step in range(steps):
        work = [1000 * pace * rng.uniform(0.85, 1.15) for pace in (1.0, 1.3)]
        for rank, mine in enumerate(events):
            mine.append(x("kernel", "gemm", clock, work[rank]))
            came = clock + work[rank]
            for bucket in range(buckets):
                ends = clock + max(work) + 100 * (bucket + 1)
                number = {"Seq": step * buckets + bucket}
                mine.append(collective("allreduce", came, ends - came, **number))
                came = ends
            mine.append(x("user_annotation", f"ProfilerStep#{step}", clock, came - clock, pid=40))
        clock = came
    return [save(folder, f"{r}.json", trace(*mine, rank=r)) for r, mine in enumerate(events)]


@pytest.mark.parametrize("buckets", [1, 4])
def test_a_straggler_of_few_steps_is_no_finding_but_a_reason_to_record_more(tmp_path, buckets):
    short = analyze(read(*planted(tmp_path, 3, buckets)))
    assert not short.findings
    assert "too short to be sure (3 steps; it takes about 25); rank 1" in short.nothing
    long = analyze(read(*planted(tmp_path, 25, buckets)))
    assert {finding.rank for finding in long.findings} == {1} and not long.nothing


def test_of_five_steps_of_several_buckets_each_it_is_the_steps_that_count(tmp_path):
    found = analyze(read(*planted(tmp_path, 5, 8)))
    assert "(5 steps; it takes about 25)" in found.nothing
