//! The process's limit of open files, and the connections that it permits.

/// Files besides connections: those of the admin port, the store and the runtimes.
const OTHERS: u64 = 512;

/// Raises the limit of open files as far as it goes: a login shell's 1,024 would run out long
/// before `wanted` connections. Returns the number of connections to accept: up to `wanted`, with
/// descriptors left over for probes and the store.
pub fn permit_connections(wanted: usize) -> usize {
    let files = wanted as u64 + OTHERS;
    let limit = rlimit::increase_nofile_limit(files).unwrap_or(files);
    let connections = usize::try_from(limit - OTHERS.min(limit / 2)).unwrap_or(usize::MAX);
    if connections < wanted {
        tracing::warn!(
            limit,
            wanted = files,
            connections,
            "too few open files allowed: accepting fewer connections; raise `ulimit -n`"
        );
    }
    connections.min(wanted)
}
