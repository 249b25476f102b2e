"""Free ports of the loopback address, for programs that cannot listen on port 0."""

import contextlib
import os
import socket
from pathlib import Path

HOST = "127.0.0.1"


def _candidates():
    # Below the ephemeral ports, so that a restarted server gets its port back. Each process starts
    # at another port, as two may run at once.
    first_of_kernel = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    lowest = 10_000
    begin = os.getpid() * 101
    while True:
        for offset in range(first_of_kernel - lowest):
            yield lowest + (begin + offset) % (first_of_kernel - lowest)


_next = _candidates()


def free_ports(count):
    """Unused ports, each returned only once."""
    found = []
    for port in _next:
        with contextlib.suppress(OSError), socket.socket() as one:
            one.bind((HOST, port))
            found.append(port)
        if len(found) == count:
            return found


def free_port():
    return free_ports(1)[0]


def accepts(port):
    """Whether a connection to this port is accepted."""
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=5):
        return True
    return False
