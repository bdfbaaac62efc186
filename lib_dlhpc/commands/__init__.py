"""Commands of `dlhpc` with files of their own: what each asks for, and what it prints.

    calibrate    measure this machine, for predictions: `dlhpc calibrate io`
    compare      predicted, simulated and measured, side by side: `dlhpc compare`
    couple       a simulation that feeds training: who waits, and what helps: `dlhpc couple`
    experiment   what most commands are about: a file or a replay, and --set
    jobs         what was submitted: list it, say why, cancel: `dlhpc jobs`
    network      ranks of this machine behind slow links, allreduces in them: `dlhpc network`
    predict      a run in closed form: `dlhpc predict`
                 on_machine: the experiment of a command on a machine that was measured, and its bands
    simulate     steps of it on every rank, beside the prediction: `dlhpc simulate`
    snapshots    versions of a run's state: look, go back, branch off, clean up: `dlhpc snapshots`
                 snapshots_names: what the names in a store stand for
    submit       the same run as a job of a batch system: `dlhpc submit`
    store        pack a folder into partitions, look into them, verify them: `dlhpc store`

Each file has `add(subparsers)`: it adds the command's parser and sets `command`, a function that takes the
options and returns the exit status. What a command does is in the rooms below.
"""
