"""Trains a finished run again, or what a statement is about, and compares bitwise: exit code 0 if it is identical, 1 if it differs.

python jobs/verify.py conf/adult.yaml --run RUN_ID [--steps FIRST_STEPS] [--section.setting VALUE ...]
python jobs/verify.py [conf/adult.yaml] --statement S.json [--key PUBLIC.pem] [--sign PRIVATE.pem] [--model FOLDER] [--json]
"""

from pipelines.commands import run

if __name__ == "__main__":
    run("verify", "jobs/verify.py")
