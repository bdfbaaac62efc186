"""What a process starts and makes ends with it, however it ends: Ctrl-C, TERM, a closed terminal, kill -9.

signals.py  INT, TERM and HUP end a command in one way; its exit status is the shell's
owned.py    start and end processes; temporary folders; all of it registered with the guard
guard.py    a small process that outlives this one by a moment: it ends and removes what was registered
files.py    a file is written whole or not at all, and an error names it

The lowest room, importable in a moment and without numpy: the command line handles signals before it imports more.
"""
