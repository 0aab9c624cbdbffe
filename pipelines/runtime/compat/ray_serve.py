"""Private names of Ray Serve."""

from typing import Any

import ray
from ray.serve._private import replica

from pipelines.runtime.compat import attribute, present, replace

LOOPBACK = "127.0.0.1"


def is_on_loopback() -> bool:
    """Whether this process's node of Ray is known to others as 127.0.0.1, so that nobody elsewhere calls it."""
    node_id = ray.get_runtime_context().get_node_id()
    return LOOPBACK in {node["NodeManagerAddress"] for node in ray.nodes() if node["NodeID"] == node_id}


def keep_servers_on_loopback() -> None:
    """In a replica: make the server for calls between replicas, which Ray Serve starts after the replica's class was made, listen on
    loopback. Ray Serve has it listen on all interfaces, without a setting and without a token."""
    present(replica, "add_port_to_grpc_server")
    add_port = attribute(replica, "add_port_to_grpc_server")

    def listen_on_loopback(server: Any, address: str) -> Any:
        return add_port(server, f"{LOOPBACK}:{address.rpartition(':')[2]}")

    replace(replica, "add_port_to_grpc_server", listen_on_loopback)
