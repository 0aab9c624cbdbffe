"""One ETL in each hostile environment: an environment that changes the version or its digest is a fault."""

from pathlib import Path

from environments import ENVIRONMENTS, Environment, run_etl, write_raw

from chaos.training import Outcome


def run_all(folder: Path) -> list[Outcome]:
    """The outcomes, each compared with the version of an environment without any setting."""
    write_raw(folder)
    uri = f"sqlite:///{folder}/mlflow.db"
    expected = run_etl(Environment(), folder / "plain", folder, uri)
    outcomes = []
    for name, environment in ENVIRONMENTS.items():
        try:
            result = run_etl(environment, folder / name.replace(" ", "-"), folder, uri)
            outcomes.append(Outcome(name, result == expected, note="" if result == expected else f"{result} in place of {expected}"))
        except AssertionError as error:
            outcomes.append(Outcome(name, False, note=str(error)))
        print(f"{name}: {outcomes[-1].recovered} {outcomes[-1].note}", flush=True)
    return outcomes
