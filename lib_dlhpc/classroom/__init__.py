"""A class: what each learner answered, on their own machine first, and what a teacher sees of it.

learner.py     a learner's token, folder and consent
entry.py       one answer, as a line of JSON
record.py      a learner's file of answers, which only grows
recording.py   what a kernel or a check writes into it, and reads back
classes.py     a class's folder: its learners, the keys of its server
accounts.py    learners whom a hub knows by name
database.py    all answers of a class in SQLite, each once
collecting.py  from learners' folders into the database
sending.py     from a learner's machine to the class, until it is acknowledged
board.py       who is where, guesses and mistakes of each question
grades.py      files that gradebooks take
report.py      what a learner sees of their own answers
"""
