"""What the kinds of layers share.

kind.py                    Layer, Kind: what a file of layers/ declares; Site, Counts; KINDS
saved.py                   Context, Saved: state of a pass, and the layout of arrays
arena.py, arena_plan.py    planned, reused memory
slices.py                  a rank's part of a partitioned tensor
windows.py                 windows that slide over space: their outputs, and taps
minimal.py                 convolutions of kernel 3 with fewer multiplications
elementwise.py, masks.py   in-place layers, random masks
"""
