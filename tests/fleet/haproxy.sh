# HAProxy of Debian, for `. tests/fleet/haproxy.sh`: installs it if it is not there and it may.
PATH=$PATH:/usr/sbin
if ! command -v haproxy >/dev/null; then
    [ "$(id -u)" = 0 ] || { echo "install haproxy" >&2; exit 1; }
    # Not started by its package: what runs here is started here.
    apt-get update -qq && RUNLEVEL=1 apt-get -o DPkg::Lock::Timeout=300 install -qq -y --no-install-recommends haproxy >/dev/null
fi
