"""A strategy for a test on Ray nodes of unequal speed. Ray's workers import it from the folder in which the tests were started."""

import os
import time
from typing import Any

from pipelines.train.exact.exact import Exact
from pipelines.train.exact.settings import Settings

SLOW = "TESTS_SLOW_MACHINE"
"""The variable that a slow node is started with."""


class UnequalMachines(Settings):
    implementation = "tests.unequal:OnUnequalMachines"


class OnUnequalMachines(Exact):
    """`exact`, whose passes take 50 ms longer on a slow machine."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if os.environ.get(SLOW):
            self.model.register_forward_pre_hook(lambda *_: time.sleep(0.05))
