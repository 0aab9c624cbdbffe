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
    """The epsilon of (epsilon, delta)-differential privacy for adding or removing one client, after so many rounds in each of which every
    client takes part with probability `share`, and the noise is `multiplier` times what one client may change."""
    from opacus.accountants.analysis.rdp import get_privacy_spent

    orders, of_round = _renyi(share, multiplier)
    found, _ = get_privacy_spent(orders=orders, rdp=rounds * of_round, delta=delta)
    return float(found)


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
    drawn = (words(2 * pairs, seed, NOISE, number) >> np.uint64(11)) * 2.0**-53
    radius, angle = np.sqrt(-2 * np.log1p(-drawn[:pairs])), 2 * np.pi * drawn[pairs:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]
