"""Machines that disagree are told apart before any work, in one line."""

import sys
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import pytest

from pipelines.errors import MismatchError
from pipelines.installed import disagreement, installed
from pipelines.train.worker import PACKAGES, check_installed


def test_equal_machines_agree() -> None:
    here = installed(["numpy", "no-such-package"])
    assert here == {"Python": ".".join(map(str, sys.version_info[:3])), "numpy": version("numpy"), "no-such-package": "missing"}
    assert disagreement(here, dict(here), "host") == ""


def test_what_differs_is_named_with_both_versions() -> None:
    here = {"Python": "3.11.2", "numpy": "2.4.6", "torch": "2.13.0"}
    assert disagreement(here, {"Python": "3.12.1", "numpy": "2.4.6"}, "worker b") == (
        "worker b has other versions than the driver: Python 3.11.2 here and 3.12.1 there, torch 2.13.0 here and missing there; "
        "give both one image, or one packed environment"
    )


@dataclass
class Given:
    """Of an Assignment, what is compared."""

    installed: dict[str, str]


def test_a_worker_with_other_packages_than_the_driver_refuses() -> None:
    here: Any = Given(installed(PACKAGES))
    check_installed(here)
    other: Any = Given({**here.installed, "torch": "1.0"})
    with pytest.raises(MismatchError, match=r"torch 1\.0 here and .* there; give both one image"):
        check_installed(other)
