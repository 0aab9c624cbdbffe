"""Examines this machine, and what a config needs: Java, memory, disks, ports, GPUs, packages, MLflow and stores.

python jobs/doctor.py [CONF.yaml] [--json] [--section.setting VALUE ...]
"""

from pipelines.commands import run

if __name__ == "__main__":
    run("doctor", "jobs/doctor.py")
