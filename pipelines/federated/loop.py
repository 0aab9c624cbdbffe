"""The loop of a worker in federated training: the ordinary one, whose steps are rounds."""

from pipelines.federated.rounds import Rounds
from pipelines.loader import Loader
from pipelines.train.loop import Loop
from pipelines.train.state import order_of


class FederatedLoop(Loop):
    def _new_loader(self) -> Loader:
        return Rounds(self._version, order_of(self._config), self._settings.clients, self._context, draws=self._task.draws)
