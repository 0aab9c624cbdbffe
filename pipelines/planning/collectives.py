"""Seconds of collective operations between the devices of a group: a latency per message, and its bytes by a link's bandwidth.

The model of a message is Hockney's (1994): latency + bytes / bandwidth. The algorithms are those of NCCL: rings for all-gather,
reduce-scatter and large all-reduces (Patarasuk and Yuan 2009), trees for small all-reduces (Thakur, Rabenseifner and Gropp 2005).

A ring over several machines enters and leaves each machine once. NCCL runs a ring for each network card, so that the devices of a group on
one machine send through all of their cards at once: the ring is as fast as the links within a machine, or as the cards together.
"""

from dataclasses import dataclass, replace
from math import ceil, log2

from pipelines.planning.hardware import Exchanged, Hardware


@dataclass(frozen=True)
class DeviceGroup:
    """Devices that communicate: how many, and how many of them share a machine."""

    size: int
    per_machine: int

    @property
    def machines(self) -> int:
        return ceil(self.size / self.per_machine)


@dataclass(frozen=True)
class Network:
    """The bandwidths, in bytes/s per device and direction, and the latencies of a message, within a machine and between machines."""

    link_bytes_per_second: float
    link_latency_seconds: float
    network_bytes_per_second: float
    network_latency_seconds: float
    has_hops: bool = True
    """Whether a message waits at each hop of a ring or tree; else once, however many members a group has."""


def network(hardware: Hardware) -> Network:
    """The bandwidths that collectives reach on a kind of hardware."""
    fraction = hardware.achieved.network.fraction
    return Network(
        hardware.link_bytes_per_second * fraction,
        hardware.link_latency_seconds,
        hardware.network_bytes_per_second * fraction,
        hardware.network_latency_seconds,
    )


def exchange_network(hardware: Hardware, exchanged: Exchanged) -> Network:
    """`network`, with what an exchange takes between processes of one machine where the data sheet has it."""
    links, exchange = network(hardware), hardware.exchanges.get(exchanged)
    if exchange is None:
        return links
    rate, latency = exchange.bytes_per_second, exchange.latency_seconds
    return replace(links, link_bytes_per_second=rate, link_latency_seconds=latency, has_hops=False)


def group(dimensions: tuple[tuple[int, int], ...], devices_per_machine: int) -> DeviceGroup:
    """The group over dimensions of a mesh, each a (size, stride) in ranks; consecutive ranks share a machine."""
    size, per_machine = 1, 1
    for length, stride in sorted(dimensions, key=lambda dimension: dimension[1]):
        size *= length
        per_machine *= min(length, max(1, devices_per_machine // stride))
    return DeviceGroup(size, per_machine)


def ring_bandwidth(members: DeviceGroup, links: Network) -> float:
    """Bytes/s through each device of a ring."""
    if members.machines == 1:
        return links.link_bytes_per_second
    cards = members.per_machine * links.network_bytes_per_second
    return cards if members.per_machine == 1 else min(links.link_bytes_per_second, cards)


def _ring_latency(members: DeviceGroup, links: Network) -> float:
    """Seconds of the messages of one way around a ring, which is as many hops as members, but one."""
    if not links.has_hops:
        return links.link_latency_seconds
    between = members.machines if members.machines > 1 else 0
    hops = members.size - 1
    return min(between, hops) * links.network_latency_seconds + max(0, hops - between) * links.link_latency_seconds


def all_gather_seconds(total_bytes: float, members: DeviceGroup, links: Network) -> float:
    """Seconds until every member has all parts, `total_bytes` together: each receives (n - 1) / n of them."""
    if members.size == 1:
        return 0.0
    return total_bytes * (members.size - 1) / members.size / ring_bandwidth(members, links) + _ring_latency(members, links)


def reduce_scatter_seconds(total_bytes: float, members: DeviceGroup, links: Network) -> float:
    """Seconds until every member has its part of the sum of `total_bytes`: those of an all-gather, in the other direction."""
    return all_gather_seconds(total_bytes, members, links)


def all_reduce_seconds(total_bytes: float, members: DeviceGroup, links: Network) -> float:
    """Seconds until every member has the sum of `total_bytes`: a ring's 2 (n - 1) / n of the bytes, or a tree's two ways through its
    levels, whichever is faster."""
    if members.size == 1:
        return 0.0
    ring = 2 * all_gather_seconds(total_bytes, members, links)
    if not links.has_hops:
        return ring
    levels = ceil(log2(members.machines)), ceil(log2(min(members.per_machine, members.size)))
    latency = 2 * (levels[0] * links.network_latency_seconds + levels[1] * links.link_latency_seconds)
    return min(ring, 2 * total_bytes / ring_bandwidth(members, links) + latency)


def send_seconds(message_bytes: float, is_within_machine: bool, links: Network) -> float:
    """Seconds of one message between two devices."""
    if is_within_machine:
        return links.link_latency_seconds + message_bytes / links.link_bytes_per_second
    return links.network_latency_seconds + message_bytes / links.network_bytes_per_second
