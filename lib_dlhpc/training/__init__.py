"""Training for real: numpy layers, optimisers and MPI; the networks are the models that predict prices.

trainer.py      train(experiment, comm): the steps of a run, equal to one rank
hybrid.py       the same where the network is shared out;  microbatches.py: on their way through the stages
stage.py        a rank's part of it;  groups.py: with whom;  pipe.py: messages between stages;  tied.py: weights
                that stages share;  zero.py: what replicas share out;  whole.py: the parts put together
worker.py       one rank of `dlhpc run`;  watching.py: its shared memory ends with it
check.py        what can be trained, told before any rank starts
network.py      a model that can be trained, or a stage of one;  trainable.py: which;  graph.py: how its layers
                hang together;  passes.py: what a microbatch leaves for its way back;  first.py: first weights
weights.py      where weights lie and gradients go: in memory, one flat array each
offload.py      out of core:  aside.py: activations on disk;  on_disk.py: all else as well;  disk.py: the file
layers/         each with a forward and a backward pass
loss.py         cross-entropy, mean squared error
optimizers.py   SGD, momentum, LARS, Adam, LAMB;  rates.py: warm-up, scaling, decay
data.py         samples without a network connection, and their order;  datasets/: real images
exchange.py     gradients summed bucket by bucket while backward goes on
compress.py     only the largest gradients travel
server.py       asynchronous updates with parameter servers;  staleness.py: how stale they were
together.py     sums and means over all ranks;  alone.py: a communicator of one;  threads.py: one thread
snapshot.py     the state of a run in one file;  snapshot_parts.py: of a network that is shared out;
                versions.py: in a store, while training goes on
record.py       what a rank did and when;  cores.py: how long it waited for a core
probe.py        what `dlhpc calibrate` times: layers and updates;  probe_disk.py: out of memory and back;
                probe_steps.py: whole steps
coupled/        a simulation that feeds training, on the same ranks or on others
large_batch.py  the experiments of module 06, with large_batch_results.py and large_batch_steps.py
lab/            what the labs stand on: emulated ranks, recorded steps, findings
"""
