"""Base of the input lab.

counting.py    counted(folder): Python's calls on the files of a folder, and requests to a packed store
"""
