"""Training for real: numpy layers, optimizers and MPI, with the same model descriptions that predictions use.

trainer.py            train(experiment, comm): any number of ranks equals one rank
rank.py               Rank: the loop of a run on one rank, step by step
synchronous.py        executes the program of a step;  microbatches.py: microbatches in flight through the stages
stage.py              one pipeline stage of this rank;  groups.py: communicators;  pipeline_messages.py: messages
                      between stages; tied_weights.py: weights tied across stages;  zero.py: ZeRO;  sharding.py: shards
                      of a flat array; gathers.py: all-gathers of updated weights; full_tensors.py: full tensors
                      assembled from shards;  tensor_norms.py: their norms
worker.py             one rank of `dlhpc run`;  shared_memory.py: MPICH's shared memory is freed with the run
check.py              what can be trained, checked before any rank starts
network.py            a trainable model or one stage of it;  trainable.py: which models;  graph.py: layer dependencies;
                      passes.py: the instructions of a pass, and what it saves;  initialization.py: initial weights
weights.py            storage of weights and gradients: in memory, one flat array each
offload.py            out-of-core training:  activation_offload.py: activations on disk;  on_disk.py: weights, gradients
                      and optimizer state on disk;  disk.py: the file
messages/             passes of the layers in which ranks communicate; all others are in lib_dlhpc/layers
loss.py               cross-entropy, mean squared error
optimizers.py         SGD, momentum, LARS, Adam, LAMB, Muon (newton_schulz.py);  learning_rate.py: warm-up, scaling,
                      decay
data.py               samples that need no download, and their order;  datasets/: real images
input/                samples as files, and readers that fetch batches ahead, as slow as the storage tier
gradient_allreduce.py gradient allreduce, bucket by bucket, overlapped with backward; expert_exchange.py: of replicas
                      that share out the experts; ordered_collectives.py: one collective after another
wire_formats.py       formats of gradients on the wire: fp16, bf16, fp8
compress.py           deep gradient compression: only the largest gradients are sent
outer_optimizer.py    the outer optimizer of local updates
low_rank.py           low-rank compression: factors of gradients are sent
server.py             asynchronous updates with parameter servers;  staleness.py: their staleness
collectives.py        sums and means over all ranks;  single_rank.py: a communicator of size 1;  threads.py: one thread
snapshot.py           checkpoint of a run in one file;  snapshot_parts.py: of a sharded network; versions.py:
                      asynchronous checkpoints in a store
record.py             records what a rank does and when;  core_waits.py: run-queue delay;  expert_load.py: load
                      imbalance
probe.py              what `dlhpc calibrate` times: layers and updates;  probe_disk.py: offload bandwidth;
                      probe_steps.py: whole steps
coupled/              a simulation that feeds training, on the same ranks or on others
"""
