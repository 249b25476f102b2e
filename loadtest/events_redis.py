"""Clients of a window in Redis: `events.sh --redis`."""

import statistics

from events_load import Load, Server
from suites.testkit.ports import free_port
from suites.testkit.process import Process

CONNECTIONS = (1, 4, 16, 48)
WINDOW = """
[[window]]
name = "shared"
length = "1h"
backend = "redis://127.0.0.1:{port}"
"""


def redis_clients(options, folder):
    """Prints the rate of events by the number of clients."""
    port, rows = free_port(), {}
    redis = ["redis-server", "--port", port, "--save", "", "--appendonly", "no"]
    windows = WINDOW.format(port=port)
    with (
        Process(*redis, log=folder / "redis.log") as process,
        Server(folder, windows) as server,
    ):
        process.wait_for("Ready to accept connections")
        # Redis, the writer and wrk share all cores.
        load = Load(server, options, [])
        for _ in range(options.rounds):
            for connections in CONNECTIONS:
                options.connections = connections
                _, row = load.run("shared", options.seconds, options.batch)
                rows.setdefault(connections, []).append(row)
    rates = {
        connections: statistics.median(row.events / row.seconds for row in runs)
        for connections, runs in rows.items()
    }
    best = max(rates.values())
    print("| clients | events/s | part of the best | p99 ms | CPU µs of the writer per event |")
    print("|---|---|---|---|---|")
    for connections, runs in rows.items():
        row = sorted(runs, key=lambda row: row.p99)[len(runs) // 2]
        cells = (connections, f"{rates[connections]:,.0f}", f"{rates[connections] / best:.2f}")
        print("| " + " | ".join(map(str, (*cells, row.p99, f"{row.cpu:.2f}"))) + " |")
