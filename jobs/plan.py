"""Lists the layouts with which a config trains on given machines: memory, seconds, hours and costs of each, and the best of them.

python jobs/plan.py conf/gpt2.yaml --hardware h200x8,a100x64 [--deadline 4h] [--budget 200] [--json]
"""

from pipelines.commands import run

if __name__ == "__main__":
    run("plan", "jobs/plan.py")
