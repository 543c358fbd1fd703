"""Endpoints: where a socket binds or connects."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Collection

import zmq

_PORT_MAX = 65535
_NO_ENDPOINT = (
    errno.EINVAL,
    errno.EPROTONOSUPPORT,
    errno.ENAMETOOLONG,
    zmq.ENOCOMPATPROTO,
)
"""What ZeroMQ says of those that no machine could serve."""


def bind(socket: zmq.Socket[bytes], endpoint: str) -> str:
    """Binds a socket; returns where, a wildcard port resolved.

    Raises `ValueError` for what is no endpoint of such a socket, `zmq.ZMQError` for one that cannot
    be bound here.
    """
    # ZeroMQ takes 0 for any port, too.
    _check_port(endpoint, ("*", "0"), f"1 to {_PORT_MAX}, or * for any")
    try:
        _use(socket.bind, endpoint, "tcp://*:5557")
    except zmq.ZMQError as error:
        if error.errno not in (errno.ENODEV, errno.EADDRNOTAVAIL):
            raise
        raise zmq.ZMQError(
            error.errno,
            f"{endpoint!r} cannot be bound: its host is no address of this machine; give one, or * "
            "for all",
        ) from None
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


def connect(socket: zmq.Socket[bytes], endpoint: str) -> None:
    """Connects a socket. Raises `ValueError` for what is no endpoint of such a socket."""
    _check_port(endpoint, (), f"1 to {_PORT_MAX}")
    _use(socket.connect, endpoint, "tcp://host:5557")


def _check_port(endpoint: str, any_port: Collection[str], rule: str) -> None:
    """ZeroMQ itself takes a number that is too large modulo 65,536, and reads `12x` as 12."""
    found = re.fullmatch(r"tcp://.*:([^:]*)", str(endpoint), re.DOTALL)
    if found is None or found[1] in any_port:
        return
    if not re.fullmatch(r"[0-9]{1,5}", found[1]) or not 1 <= int(found[1]) <= _PORT_MAX:
        raise ValueError(f"{endpoint!r} is no endpoint: a port is {rule}")


def _use(use: Callable[[str], object], endpoint: str, example: str) -> None:
    refusal = ValueError(f"{endpoint!r} is no endpoint; one is like {example}")
    if not isinstance(endpoint, str):
        raise refusal
    try:
        use(endpoint)
    except zmq.ZMQError as error:
        if error.errno in _NO_ENDPOINT:
            raise refusal from None
        raise
