"""Signs a statement of what a finished run, or a dataset version, was made from; or makes the keys that sign.

python jobs/attest.py conf/adult.yaml [--run RUN_ID] --key PRIVATE.pem --output S.json [--documents FOLDER] [--section.setting VALUE ...]
python jobs/attest.py --make-key PRIVATE.pem [--kind p256|ed25519]
"""

from pipelines.commands import run

if __name__ == "__main__":
    run("attest", "jobs/attest.py")
