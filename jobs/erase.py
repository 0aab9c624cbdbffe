"""Erases rows by their keys from every version of a dataset, and lists the models that were trained on them.

python jobs/erase.py conf/adult.yaml --key id=17 [--key id=18 ...] [--grace 12h] [--predictions FOLDER ...] [--yes]
python jobs/erase.py conf/adult.yaml --check CERTIFICATE
"""

from pipelines.commands import run

if __name__ == "__main__":
    run("erase", "jobs/erase.py")
