"""On every rank: asynchronous and compressed runs keep their laws. Started by test_train_async.py."""

import sys
from pathlib import Path
from time import sleep

import numpy as np
from mpi4py import MPI

from lib_dlhpc.errors import SpecError
from lib_dlhpc.simulation.asynchronous import asynchronous_sgd
from lib_dlhpc.spec.experiment import loads
from lib_dlhpc.spec.training import Training
from lib_dlhpc.timeline import breakdown
from lib_dlhpc.training import loss as losses
from lib_dlhpc.training.compress import Compressed, plain
from lib_dlhpc.training.data import global_batches, load
from lib_dlhpc.training.network import Network
from lib_dlhpc.training.optimizers import Optimizer
from lib_dlhpc.training.record import Recorder
from lib_dlhpc.training.trainer import train

comm = MPI.COMM_WORLD
p, rank = comm.size, comm.rank
FOLDER = Path(sys.argv[1])
TEXT = """
dataset = { name = "digits" }
machine = { name = "laptop", nodes = 8 }
strategy = { devices_per_node = 1, batch = 64, precision = "fp64" }
run = { epochs = 2, seed = 3 }
training = { rate = 0.02, weight_decay = 0.001 }
"""
DIGITS = loads(TEXT + 'model = { name = "mlp-digits" }')
# Random numbers of a step, and local statistics of a worker.
NOISY = loads(
    TEXT
    + """
[model]
family = "sequential"
input = [1, 8, 8]
layers = [
    { kind = "flatten" }, { kind = "dense", features = 32 }, { kind = "batch_norm" },
    { kind = "relu" }, { kind = "dropout", rate = 0.2 }, { kind = "dense", features = 10 },
]
"""
)


def asynchronous(base=DIGITS, **changes):
    """The run on digits, with these changes; strategy__servers for strategy.servers."""
    dotted = {name.replace("__", "."): value for name, value in changes.items()}
    return base.set({"strategy.update": "asynchronous", **dotted})


def same(one, other, what, tolerance=0.0):
    assert np.allclose(one, other, rtol=0, atol=tolerance), (what, np.abs(one - other).max())


def one_worker_equals_sequential(servers):
    """However many servers share the weights, one worker's run is plain training, to the last bit."""
    cases = [{"strategy__optimizer": name} for name in ("sgd", "momentum", "adam")]
    cases += [{"strategy__optimizer": name} for name in ("lars", "lamb") if servers == 1]
    cases += [
        {"strategy__precision": "fp32"},
        {"run__epochs": 1.6},
        {"strategy__staleness": 2},
        {"training__decay": "growth", "training__steps_at": 1.0},
        {"training__warm_up": 1.0, "training__base_batch": 32},
        {"base": NOISY, "training__shift": 1},
    ]
    for case in cases:
        experiment = asynchronous(strategy__servers=servers, **case)
        none = {"strategy.servers": 1, "strategy.staleness": 0}
        alone = experiment.set({"strategy.update": "synchronous", **none})
        ours, plainly = train(experiment, comm), train(alone, MPI.COMM_SELF)
        same(ours.network.weights, plainly.network.weights, case)
        same(ours.network.statistics, plainly.network.statistics, case)
        assert ours.samples == plainly.samples
        assert ours.accuracy == plainly.accuracy
        assert not ours.updates.staleness.any()
        assert ours.sent == ours.network.weights.nbytes


def one_worker_resumes_bit_for_bit(servers):
    folder = FOLDER / f"one-{servers}"
    experiment = asynchronous(strategy__servers=servers, strategy__optimizer="adam")
    whole = train(experiment, comm)
    if rank == 0:
        folder.mkdir()
    comm.Barrier()
    train(experiment.set({"run.epochs": 1.0}), comm, folder)
    rest = train(experiment, comm, folder)
    same(rest.network.weights, whole.network.weights, "resumed")
    assert rest.samples * 2 == whole.samples


def replayed(experiment, run):
    """The weights that one rank gets from the run's updates, each with the weights that were as stale."""
    data, strategy = load(experiment, np.float64), experiment.strategy
    network = Network(experiment.model, np.float64, experiment.run.seed)
    rule = Optimizer(strategy.optimizer, experiment.training)
    versions, updates = [network.weights.copy()], iter(range(len(run.updates.worker)))
    workers, step, epoch = run.updates.worker.max() + 1, 0, 0
    while epoch < experiment.run.epochs:
        batches, made = list(global_batches(experiment, len(data.x), epoch)), [0] * workers
        for _ in batches:
            number = next(updates)
            worker, missed = run.updates.worker[number], run.updates.staleness[number]
            turn = worker + made[worker] * workers
            made[worker] += 1
            network.context.step = step + turn
            network.weights[...] = versions[number - missed]
            indices = batches[turn][1]
            outputs = network.forward(data.x[indices])
            _, dy = losses.softmax_cross_entropy(outputs, data.y[indices], len(indices))
            network.backward(dy)
            network.weights[...] = versions[number]
            rule.update(network, experiment.training.rate)
            versions.append(network.weights.copy())
        step, epoch = step + len(batches), epoch + 1
    return versions[-1]


def updates_are_what_the_log_says(workers):
    """Replayed on one rank in the order of arrival, with the recorded staleness, a run gives the same bits."""
    experiment = asynchronous()
    told = []
    run = train(experiment, comm, None, told.append)
    same(run.network.weights, replayed(experiment, run), "replayed")
    weights = comm.allgather(run.network.weights.tobytes())
    assert len(set(weights)) == 1  # all ranks end with the newest weights

    batches = len(list(global_batches(experiment, 1438, 0)))
    assert len(run.updates.worker) == 2 * batches
    assert run.samples == 2 * 1438  # each sample once an epoch
    for epoch in range(2):
        part = slice(epoch * batches, (epoch + 1) * batches)
        worker, stale = run.updates.worker[part], run.updates.staleness[part]
        turns = np.bincount(np.arange(batches) % workers)
        assert (np.bincount(worker) == turns).all()
        # Between two updates of a worker lie the updates that its weights have missed.
        last = [np.flatnonzero(worker == each)[-1] + 1 for each in range(workers)]
        assert stale.sum() == sum(last) - batches
        assert stale.mean() <= workers - 1
    if rank == 0:
        assert [row["epoch"] for row in told if "accuracy" in row] == [1, 2]
        simulated = asynchronous_sgd(
            experiment.machine, workers, run.sent, 1e-3, batches // workers
        )
        return f"staleness measured {run.updates.as_dict()}, simulated {simulated.staleness.mean():.2f}"
    return ""


def rows_tell_of_push_update_and_pull(workers):
    experiment = asynchronous(strategy__servers=p - workers)
    run = train(experiment, comm)
    assert (run.timeline is None) == (rank != 0)
    if rank:
        return
    table = run.timeline
    assert table.ranks == workers
    steps = np.bincount(run.updates.worker)
    for worker in range(workers):
        rows = [event for event in table if event.rank == worker]
        for kind in ("push", "pull"):
            ours = [event for event in rows if event.name == f"{kind}, worker {worker}"]
            assert len(ours) == steps[worker]
            assert {event.bytes for event in ours} == {run.network.gradients.nbytes}
        assert sum(event.kind == "forward" for event in rows) == steps[worker]
    measured = breakdown(table)
    assert np.isclose(sum(measured.terms.values()), measured.step_time)
    assert measured.terms["backward"] > 0 and measured.terms["update"] > 0


def ahead(updates, batches, workers):
    """By how many steps the fastest is ahead of the slowest after each update, epoch by epoch."""
    steps = np.eye(workers, dtype=int)[updates.worker].reshape(-1, batches, workers).cumsum(axis=1)
    return (steps.max(axis=2) - steps.min(axis=2)).ravel()


def a_bound_holds_the_fast_ones_back(workers):
    """Rank 0 is slow: without a bound the others run ahead, with a bound s they do not."""
    aside = comm.Dup()

    def waits_for_rank_1(step):
        if rank == 0 and step == 0:
            aside.recv(source=1)
        if rank == 1 and step == 19:  # after 6 steps or more
            aside.send(None, 0)

    def is_slow(step):
        sleep(0.004 if rank == 0 else 0.0)

    def run(bound, begins):
        experiment = asynchronous(
            strategy__staleness=bound, strategy__servers=p - workers, run__epochs=1.0
        )
        updates = train(experiment, comm, begins=begins).updates
        return ahead(updates, 23, workers).max(), updates.staleness.max()

    assert run(0, waits_for_rank_1)[0] >= 6
    for bound in (1, 2):
        lead, stale = run(bound, is_slow)
        assert lead <= bound + 1  # the step that was begun at the bound is counted
        assert stale <= (workers - 1) * (2 * bound + 1)
    aside.Free()


def a_resumed_run_goes_on(workers):
    folder = FOLDER / f"many-{workers}"
    if rank == 0:
        folder.mkdir()
    comm.Barrier()
    experiment = asynchronous(
        strategy__servers=p - workers, strategy__optimizer="sgd", training__rate=0.05
    )
    first = train(experiment, comm, folder)
    longer = experiment.set({"run.epochs": 6.0})
    told = []
    last = train(longer, comm, folder, told.append)
    assert last.samples == 2 * first.samples
    assert last.test_loss < first.test_loss
    if rank == 0:
        assert [row["epoch"] for row in told if "accuracy" in row] == [3, 4, 5, 6]


def refused(says, experiment):
    try:
        train(experiment, comm)
    except SpecError as error:
        assert says in str(error), error
    else:
        raise AssertionError(f"not refused: {says}")


def compression_keeps_its_laws():
    """On several ranks: sending everything equals dense; nothing is lost; all ranks get the same bits."""
    training = Training(weight_decay=0.01)
    own = Network(DIGITS.model, np.float64)
    dense = Network(DIGITS.model, np.float64)
    exchange = Compressed(training, 0.9, own, comm, Recorder())
    ours, usual = plain(training), Optimizer("momentum", training)
    for step in range(5):
        own.gradients[...] = np.random.default_rng([step, rank]).normal(size=own.gradients.size)
        dense.gradients[...] = comm.allreduce(own.gradients)
        exchange.begin(0.0)
        exchange.finish()
        ours.update(own, 0.1)
        usual.update(dense, 0.1)
    same(own.weights, dense.weights, "keeps everything", 1e-12)

    exchange = Compressed(Training(sparsity=0.9), 0.0, own, comm, Recorder())
    given, sent = 0.0, 0.0
    for step in range(5):
        own.gradients[...] = np.random.default_rng([step, rank]).normal(size=own.gradients.size)
        given = given + comm.allreduce(own.gradients)
        exchange.begin(0.0)
        exchange.finish()
        sent = sent + own.gradients
        assert len(set(comm.allgather(own.gradients.tobytes()))) == 1
    same(sent + comm.allreduce(exchange.unsent), given, "conserved", 1e-12)


def compressed_runs_resume_bit_for_bit():
    folder = FOLDER / f"compressed-{p}"
    if rank == 0:
        folder.mkdir()
    comm.Barrier()
    experiment = DIGITS.set({"training.sparsity": 0.99, "training.sparsity_warm_up": 1.0})
    whole = train(experiment, comm)
    train(experiment.set({"run.epochs": 1.0}), comm, folder)
    rest = train(experiment, comm, folder)
    same(rest.network.weights, whole.network.weights, "resumed")
    # Of all ranks 1% of each matrix as pairs of a value and an index of 4 B; vectors as they are.
    sizes = [(each.stop - each.start, each.decays) for each in rest.network.parameters]
    value = rest.network.weights.itemsize
    pairs = sum(round(0.01 * size) for size, is_matrix in sizes if is_matrix)
    others = sum(size for size, is_matrix in sizes if not is_matrix)
    assert rest.sent == p * pairs * (value + 4) + others * value
    sent = whole.timeline.bytes[whole.timeline.where("communication")].sum() if rank == 0 else 0
    if rank == 0:
        assert sent == whole.sent * 46 * p  # what the rows say is what the run says


words = ""
if p == 1:
    refused("1 ranks leave no worker; start 2 or more", asynchronous())
elif p in (2, 3):
    one_worker_equals_sequential(servers=p - 1)
    one_worker_resumes_bit_for_bit(servers=p - 1)
    compression_keeps_its_laws()
    compressed_runs_resume_bit_for_bit()
else:
    words = updates_are_what_the_log_says(workers=p - 1)
    for servers in (1, 2):
        rows_tell_of_push_update_and_pull(workers=p - servers)
        a_bound_holds_the_fast_ones_back(workers=p - servers)
        a_resumed_run_goes_on(workers=p - servers)
    compression_keeps_its_laws()

assert not comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)  # no message is left behind
sizes = comm.gather(comm.size)
if rank == 0:
    print(f"all right on {len(sizes)} ranks\n{words}")
