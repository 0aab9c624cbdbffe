"""Searches the settings that `tune.space` of a pipeline names, and writes the config of the best trial.

python jobs/tune.py conf/adult.yaml [--output FILE.yaml] [--section.setting VALUE ...]
ray job submit --working-dir . -- python jobs/tune.py conf/adult.yaml
"""

from pipelines.commands import run

if __name__ == "__main__":
    run("tune", "jobs/tune.py")
