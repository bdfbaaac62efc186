"""The logic of the labs in labs/: what a learner writes is run on emulated ranks and judged by findings.

findings.py             one law each, which holds or not
attempts.py             findings in the record of a learner who has joined
hints.py                hints in three stages, counted in that record
mistakes.py             errors of parallel programs, explained
formula_cases.py        a learner's formula compared with the library's
endless.py              learners' functions in threads that are stopped when they do not end
program.py              a lab's checks as a program on MPI ranks
emulated/               ranks as threads; the steps of labs 1 to 5 on them
fit_the_model/          lab 6: memory and time of a run, a small run under a memory cap
repair_the_input/       lab 7: a slow input script, a learner's loader, its file calls
survive/                lab 8: expected time and checkpoint interval, a run that is killed and restarted
predict_your_cluster/   lab 9: a hidden cluster, a learner's calibration and prediction of it
grading/                marks of a class that hold: learners' code in processes of its own
race_the_planner/       lab 10: spaces of layouts, a learner's planner and its regret, two plans on real ranks
serve_the_model/        lab 11: a learner's price of a step, scheduler and plan of a service
lay_out_a_language_model/  lab 12: weights in shards, attention on a ring, a model laid out on 64 devices
read_a_trace/           lab 13: a learner's account, wait states, critical path and forecast of traces
fuse_attention/         lab 14: a chip that counts what a learner's matmul, softmax and attention move

Widgets of the labs are in explore/labs: lab.py, hints.py and predict_your_cluster.py.
"""
