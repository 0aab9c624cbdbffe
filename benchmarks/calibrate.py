"""Measures this machine, and writes its data sheet for `lockstep plan --hardware here`.

    python -m benchmarks.calibrate [--cores 2]

The sheet is conf/hardware/here.yaml under LOCKSTEP_HOME. It takes half a minute on two cores, which should be idle.
"""

import argparse

from pipelines.config.paths import home
from pipelines.planner.calibration import write_sheet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=0, help="processes; by default the cores of this machine")
    path = write_sheet(home() / "conf" / "hardware", parser.parse_args().cores)
    print(path.read_text(encoding="utf-8"), end="")
    print(path)


if __name__ == "__main__":
    main()
