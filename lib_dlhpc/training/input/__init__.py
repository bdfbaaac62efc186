"""Input of a run: the samples are files, and readers fetch the batches of the coming steps from them.

sample_files.py  the data set that [storage] describes, written once: a file a sample, several in a file, or packed
throttle.py      the tier's servers, shared by the ranks of a machine: reads take as long as the tier's numbers say
readers.py       threads that fetch the batches ahead
source.py        what a rank reads, and when
"""
