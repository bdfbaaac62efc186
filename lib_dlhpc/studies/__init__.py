"""Studies of accuracy that were trained once; their tables are stored in catalog/measured/.

large_batch.py       the experiments of module 06: runs, rates and seeds;  large_batch_steps.py: steps to an accuracy;
                     large_batch_results.py: the stored tables
accuracy_costs.py    what compression, formats of the wire, local and asynchronous updates cost in accuracy
emulated_workers.py  several workers of a run in one process
"""
