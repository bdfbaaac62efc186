"""What the kinds of layers share.

kind.py                    Layer, Kind: what a file of layers/ declares; Site, Counts; KINDS
saved.py                   Context, Saved: state of a pass, and the layout of arrays
arena.py, arena_plan.py    planned, reused memory
slices.py                  a rank's part of a partitioned tensor
windows.py                 windows that slide over space: their outputs, and taps
columns.py                 what each output of a convolution reads, as a column of a matrix
by_columns.py, minimal.py  convolutions as products with them, or with fewer multiplications
products.py                products of stacked matrices, in parts
elementwise.py, masks.py   in-place layers, random masks
"""
