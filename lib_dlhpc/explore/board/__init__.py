"""The teacher's board of a class, as a page without a kernel: it draws what classroom/board.py returns."""
