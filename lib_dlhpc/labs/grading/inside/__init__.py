"""What runs in the processes that learners' code runs in: it needs Python and numpy, and nothing of the library.

wire.py       messages over a socket: plain data and raw arrays, nothing that a receiver would execute
shared.py     arrays that both ends hold, kept alike with every message
stubs.py      what learners' functions are given in place of a communicator, a network, a stage
files.py      stand-ins for Python's file functions and the storage library
session.py    a hand-in is loaded, and its functions are called
sandbox.py    limits of the process: time, memory, files, imports
server.py     forks a fresh process for each rank

Imports are relative: the processes know this folder as `inside`, without the library around it.
"""
