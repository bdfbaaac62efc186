"""Archives hold what the timeline has, to the tick, for any reader; of others what they say is read."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import PATIENCE
from random_events import events

from lib_dlhpc import SpecError
from lib_dlhpc.timeline import Event, from_rows
from lib_dlhpc.timeline.formats import read, write

otf2 = pytest.importorskip("otf2")

TICKS = st.integers(0, 10**13).map(lambda ticks: ticks / 1e9)
CALLS = ["MPI_Allreduce", "MPI_Ibcast", "barrier", "MPI_Comm_split"]
ROWS = [
    Event(0, "compute", "region", "step", 0.0, 2.0),
    Event(0, "compute", "region", "two\nlines", 0.5, 1.0),
    Event(0, "communication", "receive", "MPI_Recv", 0.75, 1.5, 4096, 1, 0, 3),
    Event(0, "communication", "collective", "MPI_Bcast", 1.75, 1.9, 16, 2, 7, 4),
    Event(1, "communication", "send", "MPI_Send", 1.0, 1.25, 4096, 0, 0, 3),
    Event(2, "communication", "collective", "MPI_Bcast", 1.75, 1.875, 16, 2, 7, 4),
    Event(2, "communication", "communication", "bucket", 1.8, 2.0, 64, 1),
]


@pytest.fixture
def archive(tmp_path):
    write(from_rows(ROWS, 4, "measured"), tmp_path / "run.otf2")
    return tmp_path / "run.otf2"


@st.composite
def calls(draw):
    """Events whose names may be those of collectives."""
    event = draw(events(times=TICKS, sizes=2**62))
    return event._replace(name=draw(st.sampled_from([*CALLS, "a", "b"])))


@settings(max_examples=60)
@given(st.lists(calls(), max_size=25))
def test_what_is_written_comes_back_to_the_tick(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("otf2") / "run.otf2"
    write(from_rows(rows, 5, "simulated"), path)
    again = read(path, tell=pytest.fail)
    assert sorted(again) == sorted(
        row._replace(start=round(row.start * 1e9) / 1e9, stop=round(row.stop * 1e9) / 1e9)
        for row in rows
    )
    assert (again.ranks, again.source) == (5, "simulated")


def test_times_before_zero_come_back(tmp_path):
    rows = [
        Event(0, "compute", "region", "early", -1.5, 2.0),
        Event(0, "compute", "wait", "", 2.0, 3.0),
    ]
    write(from_rows(rows, 1, "measured"), tmp_path / "run.otf2")
    assert list(read(tmp_path / "run.otf2")) == rows


@settings(max_examples=30)
@given(st.lists(calls(), max_size=25))
def test_time_never_goes_back_and_regions_nest(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("otf2") / "run.otf2"
    write(from_rows(rows, 5, "simulated"), path)
    last, stacks = {}, {}
    with otf2.reader.open(str(path / "traces.otf2")) as archive:
        for location, event in archive.events:
            assert isinstance(event.time, int) and event.time >= last.get(location, 0)
            last[location] = event.time
            stack = stacks.setdefault(location, [])
            if isinstance(event, otf2.events.Enter):
                stack.append(event.region)
            elif isinstance(event, otf2.events.Leave):
                assert stack.pop() is event.region
            else:
                assert stack, "an MPI event stands within its call"
    assert not any(stacks.values())


def events_of(archive):
    """Return the events as the otf2 module has them, in a few words each."""
    found = []
    with otf2.reader.open(str(archive / "traces.otf2")) as trace:
        for location, event in trace.events:
            what = re.sub(r"(?<!^)([A-Z])", r"_\1", type(event).__name__).upper()
            words = {"Region": event.region.name} if what in ("ENTER", "LEAVE") else {}
            if what in ("MPI_SEND", "MPI_RECV"):
                other = event.receiver if what == "MPI_SEND" else event.sender
                words = {"Communicator": event.communicator.name, "Tag": str(event.msg_tag)}
                words |= {"Length": str(event.msg_length), "other": str(other)}
            if what == "MPI_COLLECTIVE_END":
                words = {"Communicator": event.communicator.name, "Sent": str(event.size_sent)}
                words |= {"Operation": str(event.collective_op).rpartition(".")[2]}
                words |= {"other": str(event.root)}
            found.append((what, location._ref, event.time, words))
    return found


def printed(archive):
    """Return the same as Debian's otf2-print prints it."""
    command = ["otf2-print", str(archive / "traces.otf2")]
    text = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=True
    ).stdout
    found = []
    for line in text.replace("two\nlines", "two lines").splitlines():
        event = re.match(r"([A-Z_]+) +(\d+) +(\d+)  (.*)", line)
        if event:
            pairs = dict(re.findall(r'(\w+): "?([^",]*?)"?(?: [<(][^,]*)?(?:,|$)', event[4]))
            if {"Receiver", "Sender", "Root"} & pairs.keys():
                pairs["other"] = pairs.get("Receiver") or pairs.get("Sender") or pairs["Root"]
            found.append((event[1], int(event[2]), int(event[3]), pairs))
    return found


def test_otf2_print_prints_what_was_written(archive, require):
    require(shutil.which("otf2-print"), "no otf2-print (Debian: otf2-tools)")
    by_module, by_tool = events_of(archive), printed(archive)
    assert len(by_module) == len(by_tool) == 2 * len(ROWS) + 2 + 4
    for mine, theirs in zip(by_module, by_tool, strict=True):
        assert mine[:3] == theirs[:3]
        for key, value in mine[3].items():
            assert theirs[3][key] == value.replace("\n", " "), (mine, theirs)
    words = {(what, key): value for what, *_, pairs in by_tool for key, value in pairs.items()}
    assert words["MPI_SEND", "Length"] == "4096" and words["MPI_RECV", "other"] == "1"
    assert words["MPI_COLLECTIVE_END", "Operation"] == "BCAST"
    assert words["MPI_COLLECTIVE_END", "Communicator"] == "communicator 7"
    assert words["MPI_COLLECTIVE_END", "other"] == "1", "rank 2 is the second of ranks 0 and 2"


def test_a_send_and_its_receive_have_one_tag(archive):
    tags = [
        pairs["Tag"] for what, *_, pairs in events_of(archive) if what in ("MPI_SEND", "MPI_RECV")
    ]
    assert tags == ["1", "1"]


# Archives of other programs


def scorep(path, ranks=2, threads=1, device=False):
    """Return a writer, its definitions and the event writers, laid out as Score-P does."""
    trace = otf2.writer.Writer(str(path), timer_resolution=10**6)
    make = trace.definitions
    root = make.system_tree_node("cluster", class_name="machine")
    node = make.system_tree_node("n1", class_name="node", parent=root)
    writers, masters = [], []
    for rank in reversed(range(ranks)):  # the order of definition is not that of the ranks
        group = make.location_group(f"MPI Rank {rank}", system_tree_parent=node)
        places = [make.location(f"thread {n}", group=group) for n in range(threads)]
        if device:
            kinds = otf2.LocationGroupType.ACCELERATOR, otf2.LocationType.ACCELERATOR_STREAM
            card = make.location_group(
                "CUDA", kinds[0], system_tree_parent=node, creating_location_group=group
            )
            places.append(make.location("CUDA[0:7]", kinds[1], group=card))
        writers.insert(0, [trace.event_writer_from_location(place) for place in places])
        masters.insert(0, places[0])
    mpi = otf2.Paradigm.MPI
    make.group("", otf2.GroupType.COMM_LOCATIONS, mpi, members=tuple(masters))
    all_of = make.group("world", otf2.GroupType.COMM_GROUP, mpi, members=tuple(masters))
    alone = make.group("self", otf2.GroupType.COMM_SELF, mpi, members=())
    swapped = make.group("back", otf2.GroupType.COMM_GROUP, mpi, members=tuple(masters[::-1]))
    comms = [
        make.comm(name, group) for name, group in (("s", alone), ("w", all_of), ("b", swapped))
    ]
    names = ["main", "solve", "MPI_Init", "MPI_Send", "MPI_Recv", "MPI_Irecv", "MPI_Waitall"]
    names += ["MPI_Allreduce", "MPI_Sendrecv", "kernel"]
    regions = {
        name: make.region(name, paradigm=mpi if name[:3] == "MPI" else otf2.Paradigm.COMPILER)
        for name in names
    }
    return trace, writers, regions, comms


def call(writer, region, start, stop, *inner):
    writer.enter(start, region)
    for event, time, values in inner:
        getattr(writer, event)(time, *values)
    writer.leave(stop, region)


def test_score_p_archive_is_read_for_what_it_says(tmp_path):
    trace, writers, regions, (_, world, back) = scorep(tmp_path / "scorep")
    base = 10**15
    (zero,), (one,) = writers
    zero.enter(base, regions["main"])
    call(zero, regions["MPI_Init"], base + 10, base + 20)
    zero.enter(base + 20, regions["solve"])
    call(
        zero, regions["MPI_Send"], base + 30, base + 50, ("mpi_send", base + 31, (1, world, 5, 800))
    )
    call(
        zero, regions["MPI_Send"], base + 50, base + 60, ("mpi_send", base + 51, (1, world, 6, 900))
    )
    zero.leave(base + 70, regions["solve"])
    both = ("mpi_send", base + 71, (0, back, 1, 8)), ("mpi_recv", base + 79, (0, back, 1, 16))
    call(zero, regions["MPI_Sendrecv"], base + 70, base + 80, *both)
    end = (otf2.CollectiveOp.ALLREDUCE, world, 2**32 - 1, 0, 24)
    reduce = [("mpi_collective_begin", base + 81, ()), ("mpi_collective_end", base + 89, end)]
    call(zero, regions["MPI_Allreduce"], base + 80, base + 90, *reduce)
    zero.leave(base + 100, regions["main"])
    one.enter(base, regions["main"])
    call(one, regions["MPI_Irecv"], base + 10, base + 11, ("mpi_irecv_request", base + 10, (7,)))
    call(one, regions["MPI_Irecv"], base + 12, base + 13, ("mpi_irecv_request", base + 12, (8,)))
    done = (
        ("mpi_irecv", base + 64, (0, world, 6, 900, 8)),
        ("mpi_irecv", base + 65, (0, world, 5, 800, 7)),
    )
    call(one, regions["MPI_Waitall"], base + 14, base + 66, *done)
    both = ("mpi_send", base + 71, (1, back, 1, 16)), ("mpi_recv", base + 79, (1, back, 1, 8))
    call(one, regions["MPI_Sendrecv"], base + 70, base + 80, *both)
    call(
        one, regions["MPI_Allreduce"], base + 85, base + 90, ("mpi_collective_end", base + 90, end)
    )
    one.leave(base + 95, regions["main"])
    trace.close()

    said = []
    table = read(tmp_path / "scorep", tell=said.append)
    assert said == [] and (table.ranks, table.source) == (2, "measured")
    talk = "communication"

    def row(rank, stream, kind, name, start, stop, *more):
        return (rank, stream, kind, name, round(start * 1e-6, 9), round(stop * 1e-6, 9), *more)

    assert sorted(event[:8] + event[8:9] for event in table) == sorted(
        [
            row(0, "compute", "region", "main", 0, 100, 0, -1, 0),
            row(0, talk, "region", "MPI_Init", 10, 20, 0, -1, 0),
            row(0, "compute", "region", "solve", 20, 70, 0, -1, 0),
            row(0, talk, "send", "MPI_Send", 30, 50, 800, 1, 0),
            row(0, talk, "send", "MPI_Send", 50, 60, 900, 1, 0),
            row(0, talk, "send", "MPI_Sendrecv", 70, 80, 8, 1, 2),
            row(0, talk, "receive", "MPI_Sendrecv", 70, 80, 16, 1, 2),
            row(0, talk, "collective", "MPI_Allreduce", 80, 90, 24, -1, 0),
            row(1, "compute", "region", "main", 0, 95, 0, -1, 0),
            row(1, talk, "region", "MPI_Irecv", 10, 11, 0, -1, 0),
            row(1, talk, "region", "MPI_Irecv", 12, 13, 0, -1, 0),
            row(1, talk, "receive", "MPI_Waitall", 14, 66, 900, 0, 0),
            row(1, talk, "receive", "MPI_Waitall", 14, 66, 800, 0, 0),
            row(1, talk, "send", "MPI_Sendrecv", 70, 80, 16, 0, 2),
            row(1, talk, "receive", "MPI_Sendrecv", 70, 80, 8, 0, 2),
            row(1, talk, "collective", "MPI_Allreduce", 85, 90, 24, -1, 0),
        ]
    )
    matched = {}
    for event in table:
        if event.match >= 0:
            matched.setdefault(event.match, []).append((event.rank, event.kind, event.bytes))
    assert sorted(map(sorted, matched.values())) == sorted(
        [
            [(0, "send", 800), (1, "receive", 800)],
            [(0, "send", 900), (1, "receive", 900)],
            [(0, "send", 8), (1, "receive", 8)],
            [(0, "receive", 16), (1, "send", 16)],
            [(0, "collective", 24), (1, "collective", 24)],
        ]
    )


def test_receives_match_in_the_order_of_their_requests(tmp_path):
    """Two messages with one tag: the first receive requested matches the first send, in any order of records."""
    trace, ((zero,), (one,)), regions, (_, world, _) = scorep(tmp_path / "a")
    for number in (1, 2):
        send = ("mpi_send", 10 * number, (1, world, 0, number))
        call(zero, regions["MPI_Send"], 10 * number, 10 * number + 5, send)
        call(one, regions["MPI_Irecv"], number, number, ("mpi_irecv_request", number, (number,)))
    done = [("mpi_irecv", 50, (0, world, 0, number, number)) for number in (2, 1)]
    call(one, regions["MPI_Waitall"], 40, 60, *done)
    trace.close()
    sizes = {}
    for event in read(tmp_path / "a" / "traces.otf2"):
        if event.kind in ("send", "receive"):
            sizes.setdefault(event.match, []).append(event.bytes)
    assert sorted(sizes.values()) == [[1, 1], [2, 2]]


def test_what_is_on_each_rank_alone_matches_nobody(tmp_path):
    trace, writers, regions, (alone, *_) = scorep(tmp_path / "a")
    end = ("mpi_collective_end", 8, (otf2.CollectiveOp.BARRIER, alone, 0, 0, 0))
    for ((writer),) in writers:
        call(writer, regions["MPI_Allreduce"], 1, 9, end)
    trace.close()
    table = list(read(tmp_path / "a"))
    assert [event.peer for event in table] == [0, 1]
    assert table[0].match != table[1].match


def test_threads_and_accelerators_are_of_their_process(tmp_path):
    trace, writers, regions, _ = scorep(tmp_path / "a", threads=2, device=True)
    for rank, (master, worker, card) in enumerate(writers):
        call(master, regions["main"], 0, 100 + rank)
        call(worker, regions["solve"], 10, 90)
        call(card, regions["kernel"], 20, 80)
    trace.close()
    rows = [(e.rank, e.stream, e.name) for e in read(tmp_path / "a")]
    of_each = [("host", "main"), ("host", "solve"), ("compute", "kernel")]
    assert sorted(rows) == sorted((rank, *row) for rank in (0, 1) for row in of_each)


def test_what_is_odd_is_reported_and_the_rest_is_read(tmp_path):
    trace, ((zero,), (one,)), regions, (_, world, _) = scorep(tmp_path / "a")
    zero.enter(0, regions["main"])
    zero.enter(5, regions["solve"])
    zero.leave(9, regions["main"])
    zero.leave(9, regions["kernel"])
    zero.enter(10, regions["kernel"])
    zero.measurement_on_off(12, otf2.MeasurementMode.OFF)
    call(one, regions["MPI_Send"], 0, 3, ("mpi_send", 1, (0, world, 0, 8)))
    trace.close()
    said = []
    table = read(tmp_path / "a", tell=said.append)
    kept = [("main", 0, 9), ("solve", 5, 9), ("kernel", 10, 12)]
    assert [
        (e.name, round(e.start * 1e6), round(e.stop * 1e6)) for e in table if e.rank == 0
    ] == kept
    for what in (
        "1 leave of what was not entered",
        "1 region that is never left: as if with the region around it",
        "1 region that is never left: as if at the last event of its thread",
        "1 event MeasurementOnOff",
        "1 message with one end only",
    ):
        assert sum(what in sentence for sentence in said) == 1, (what, said)
    assert all("traces.otf2: " in sentence for sentence in said)


# What is no archive, and what is in the way


def test_a_folder_or_file_without_an_anchor_is_refused(tmp_path, archive, capfd):
    for path, why in (
        (tmp_path / "none.otf2", "no such file"),
        (tmp_path, "has no files that end in .otf2; expected an OTF2 archive"),
        (archive / "traces.def", "expected a name that ends in"),
    ):
        with pytest.raises(SpecError, match=re.escape(str(path)) + ".*" + why):
            read(path)
    (archive / "traces.otf2").unlink()
    with pytest.raises(SpecError, match=r"run\.otf2: has no files that end in \.otf2; expected"):
        read(archive)
    (tmp_path / "x.otf2").write_text("hello")
    (tmp_path / "y.otf2").touch()
    for name in ("x.otf2", "y.otf2"):
        with pytest.raises(
            SpecError, match=rf"{name}: cannot be read: .*; expected an OTF2 archive"
        ):
            read(tmp_path / name)
    assert capfd.readouterr() == ("", ""), "the library's own messages are not for the user"


@pytest.mark.parametrize("part", ["traces.otf2", "traces.def", "traces/1.evt"])
def test_an_archive_that_is_cut_is_refused(tmp_path, archive, part, capfd):
    whole, refused = (archive / part).read_bytes(), 0
    sizes = range(0, len(whole), 1 + len(whole) // 80)
    for size in sizes:
        (archive / part).write_bytes(whole[:size])
        try:
            assert sorted(read(archive)) == sorted(ROWS), "what can be read is all that was written"
        except SpecError as error:
            assert f"{archive}/traces.otf2: cannot be read: " in str(error)
            refused += 1
    assert refused >= len(sizes) - 2  # the last bytes may say nothing
    (archive / part).unlink()
    with pytest.raises(SpecError, match=r"expected an OTF2 archive|0 of \d+ events of location"):
        read(archive)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("stop", "said"),
    [
        (2**63 - 2, r"stop = 9223372036854775806, .* from the first: legal: to 4\.61e"),
        (2**63 + 9, "stop = 9223372036854775817: expected a number of 64 bits"),
        (4 * 10**18, r"stop = 4000000000000\.0 s; legal: -4\.61e\+09 to 4\.61e\+09 s"),
    ],
)
def test_a_time_that_is_no_int64_of_nanoseconds_is_refused(tmp_path, stop, said):
    trace, ((zero,), _), regions, _ = scorep(tmp_path / "a")
    call(zero, regions["main"], 5, 5 + stop)
    trace.close()
    with pytest.raises(SpecError, match=rf"a/traces\.otf2: .*{said}"):
        read(tmp_path / "a")


@pytest.mark.parametrize(("said", "why"), [(b"-23", "-23"), (b"000", "0")])
def test_a_number_of_ranks_that_cannot_be_is_refused(tmp_path, said, why):
    write(from_rows(ROWS, 123, "measured"), tmp_path / "a.otf2")
    file = tmp_path / "a.otf2" / "traces.def"
    written = file.read_bytes()
    assert written.count(b"123") == 1
    file.write_bytes(written.replace(b"123", said))
    with pytest.raises(
        SpecError, match=rf"traces\.otf2: .*ranks = {why}: legal: from 1 to 1,000,000"
    ):
        read(tmp_path / "a.otf2")


def test_an_archive_is_replaced_and_nothing_else_is(tmp_path, archive):
    write(from_rows(ROWS[:1], 1, "measured"), archive)
    assert list(read(archive)) == ROWS[:1]
    (archive / "notes.txt").write_text("mine")
    for place in (archive, tmp_path, archive / "notes.txt"):
        with pytest.raises(SpecError, match="exists, and is not an OTF2 archive"):
            write(from_rows(ROWS, 4, "measured"), place, to="otf2")
    with pytest.raises(SpecError, match="later than"):
        write(
            from_rows([Event(0, "compute", "wait", "a", 0.0, 1e10)], 1, "measured"),
            tmp_path / "b.otf2",
        )
    with pytest.raises(FileNotFoundError):
        write(from_rows(ROWS, 4, "measured"), tmp_path / "none" / "c.otf2")
    assert [path.name for path in tmp_path.iterdir()] == ["run.otf2"]
    assert (archive / "notes.txt").read_text() == "mine"


def test_without_the_package_it_says_what_to_install(tmp_path, archive, monkeypatch):
    import builtins

    ours = builtins.__import__

    def missing(name, *given, **more):
        if name == "otf2":
            raise ImportError("No module named 'otf2'")
        return ours(name, *given, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    for act in (lambda: read(archive), lambda: write(from_rows(ROWS, 4, ""), Path("x.otf2"))):
        with pytest.raises(SpecError, match=r"pip install 'lib-dlhpc\[otf2\]'"):
            act()
