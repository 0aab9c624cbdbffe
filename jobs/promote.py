"""Makes a run's model the champion if it passes the gates of the config, or rolls back: exit code 8 if it does not pass.

python jobs/promote.py conf/adult.yaml --run RUN_ID [--section.setting VALUE ...]
python jobs/promote.py conf/adult.yaml --rollback
"""

from pipelines.commands import run

if __name__ == "__main__":
    run("promote", "jobs/promote.py")
