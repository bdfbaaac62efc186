"""What a device holds while it trains: the ledger of its memory, and what is offloaded.

device_ledger.py     ledger of one device of a network that is not split; checkpoint sizes
rank_memory.py       ledger of each rank of a split network, over a step
zero.py              model states of a rank by ZeRO level, and buffers of their exchange
rank_parts.py        which rank holds what, and its offload traffic
peaks.py             peaks of ranks of a pipeline, as columns: of one layout, or of many at once
pytorch_pipelines.py what a stage of PyTorch's pipelines holds beside Megatron-LM's
timeline.py          memory of a device over a step, layer by layer
offload.py           out of core: bytes, required bandwidth, exposed time
"""
