"""The commands of `dlhpc`: arguments and output of each.

    calibrate    measure this machine, for predictions: `dlhpc calibrate io`
    catalog      machines, models, data sets and their sources: `dlhpc catalog`
    compare      predicted, simulated and measured, side by side: `dlhpc compare`
    couple       a simulation that feeds training: wait states, better placements: `dlhpc couple`
    experiment   the experiment of a command: a file or a replay, and --set
    explore      the dashboards in the browser, or a copy of the course: `dlhpc explore`
    import       networks of other tools as models: `dlhpc import model`
    jobs         submitted jobs: list, explain, cancel: `dlhpc jobs`
    network      ranks of this machine behind slow links, allreduces in them: `dlhpc network`
    plan         the best layout of a run: `dlhpc plan`
    predict      a run in closed form: `dlhpc predict`
                 on_machine: the experiment on a measured machine, with uncertainty bands
    run          train on MPI ranks of this machine: `dlhpc run`
    simulate     steps simulated on every rank, beside the prediction: `dlhpc simulate`
    snapshots    versions of a run's state: list, restore, branch, gc: `dlhpc snapshots`
                 snapshots_names: branches and tags of a store
    submit       a run as a job of a batch system: `dlhpc submit`
    store        pack a folder into partitions, list, verify: `dlhpc store`
    trace        record, convert and analyze: `dlhpc trace`
    validate     predictions beside published results: `dlhpc validate`

Each file has `add(subparsers)`: it adds the command's parser and sets `command`, a function from options to exit
status. The work is done in the packages that it imports.
"""
