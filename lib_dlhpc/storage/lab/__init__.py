"""What the lab on input stands on.

counting.py    counted(folder): each call of Python on the files of a folder, and what a packed store is asked for
"""
