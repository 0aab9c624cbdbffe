"""The loop of a worker in federated training: the ordinary one, whose steps are rounds."""

from dataclasses import replace

from pipelines.data.loader import Loader
from pipelines.strategies.federated.rounds import Rounds
from pipelines.strategies.federated.settings import Settings
from pipelines.train.loop import Loop
from pipelines.train.state import order_of


class FederatedLoop(Loop):
    gpu_steps_per_reading = 1
    """A round takes long, and reading its sums nothing: a request to stop is seen after each."""

    def _new_loader(self) -> Loader:
        order = replace(order_of(self._config), remainder="keep")  # clients use all their rows, however few there are
        return Rounds(self._version, order, self._settings.strategy_as(Settings), self._context, draws=self._task.draws)
