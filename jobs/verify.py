"""Whether a run comes out the same, bit for bit, when it is trained again: exit code 0 if so, 1 if not.

python jobs/verify.py conf/adult.yaml --run RUN_ID [--steps FIRST_STEPS] [--section.setting VALUE ...]
"""

from pipelines.commands import run

if __name__ == "__main__":
    run("verify", "jobs/verify.py")
