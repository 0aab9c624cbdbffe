"""Differential privacy of clients: the noise on the sum of their changes, and what it guarantees.

DP-FedAvg: McMahan et al., "Learning Differentially Private Recurrent Language Models", ICLR 2018. The accountant is that of Opacus, for
Renyi differential privacy of the Gaussian mechanism on a Poisson sample (Mironov et al. 2019).
"""

from functools import cache
from importlib.util import find_spec
from socket import gethostname

import numpy as np

from pipelines.data.loader.permutations import NOISE, words
from pipelines.errors import ConfigError
from pipelines.strategies.federated.settings import Settings


def check_accountant(clients: Settings) -> None:
    """Raise ConfigError if the config asks for noise, and this machine has no accountant."""
    if clients.noise and find_spec("opacus") is None:
        raise ConfigError(
            f"train.strategy.noise is {clients.noise:g}, whose accountant is missing on {gethostname()}; pip install "
            "'lockstep-pipelines[privacy]' there"
        )


def epsilon(share: float, multiplier: float, rounds: int, delta: float) -> float:
    """The epsilon of (epsilon, delta)-differential privacy for adding or removing one client, after that number of rounds.

    In each round every client takes part with probability `share`. The noise is `multiplier` times the norm of a client's largest change.
    """
    from opacus.accountants.analysis.rdp import get_privacy_spent

    orders, divergences = _renyi(share, multiplier)
    spent, _ = get_privacy_spent(orders=orders, rdp=rounds * divergences, delta=delta)
    return float(spent)


@cache
def _renyi(share: float, multiplier: float) -> tuple[list[float], np.ndarray]:
    """Orders, and the Renyi divergence of one round at each; rounds add up."""
    from opacus.accountants import RDPAccountant
    from opacus.accountants.analysis.rdp import compute_rdp

    orders = [*RDPAccountant.DEFAULT_ALPHAS, *range(64, 513, 16)]
    return orders, np.asarray(compute_rdp(q=share, noise_multiplier=multiplier, steps=1, orders=orders))


def noise(seed: int, number: int, count: int) -> np.ndarray:
    """Standard normal numbers of round `number`, float64 of shape (count,): by the Box-Muller transform, from random words."""
    pairs = -(-count // 2)
    uniform = (words(2 * pairs, seed, NOISE, number) >> np.uint64(11)) * 2.0**-53
    radius, angle = np.sqrt(-2 * np.log1p(-uniform[:pairs])), 2 * np.pi * uniform[pairs:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]
