"""Searches the settings of a pipeline: many trainings, most of which stop early, and none of which is trained twice.

1. `space`         checks which settings vary, before anything starts, and makes the config of a trial.
2. `search`        decides what is tried next: a pure function of the plan and of results. `proposals` asks Optuna for a trial's settings.
                   `population` decides instead where trials change while they are trained.
3. `driver`        is the command: it decides jobs, and reads what they reached from MLflow. `final_trainings` are the winner's, those
                   of `alternatives`, models of other kinds, and of the `combination` of the best trials. `forks` begins a trial that
                   continues another one.
4. `placement`     has Ray Tune run jobs on the cluster, in processes that the next ones use again, as many as `trial_memory` leaves room
                   for.
5. `trial_versions` finds the dataset version of a trial whose features are encoded otherwise, or has an `etl_process` make it.
6. `search_result` is what a search has found, and its text. `result_files` files it with the `importance` of each setting, and
                   `winner_file` writes the winner's config.

A trial's training is that of `launch.training_run`, which pauses at an epoch and goes on from its checkpoint. Its run, and that of the
search, are of `tracking.search_run`.
"""
