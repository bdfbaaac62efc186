"""The front door: one page without a kernel, from results computed beforehand.

results.py      what it shows, computed by the engines
thumbnails.py   a small picture for each module, from real results
shell.py        the frame of other pages without a kernel
teach.py        the page for teachers
page.py         the page, made when it is first asked for and kept
"""
