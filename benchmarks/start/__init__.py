"""How long a newcomer waits: whole commands for 1,797 digits, beside scripts that a person would write by hand.

1. `__main__`    runs all of them by turns and prints medians.
2. `spark_job`   is ETL by hand; `digits` has the rows, the network and the steps that both training scripts share.
3. `ray_train`   trains with Ray Train, `torchrun_train` with torchrun; both log their model in MLflow.
"""
