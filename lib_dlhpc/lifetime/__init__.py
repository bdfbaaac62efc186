"""Cleanup of child processes and temporary files, however the process ends: Ctrl-C, TERM, a closed terminal, kill -9.

signals.py  uniform handling of INT, TERM and HUP, with the shell's exit status
owned.py    start and end processes; temporary folders; all registered with the guard
guard.py    a small process that outlives this one: it ends and removes what was registered
files.py    atomic file writes; errors name the file

The lowest layer, fast to import and without numpy: the command line handles signals before it imports more.
"""
