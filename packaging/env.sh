# shellcheck shell=bash
# Environment of reproducible builds. packaging/dist.sh sources it in the root of the checkout.
#
# The artifacts depend on the commit, the toolchain and Debian's packages. They do not depend on
# the folder, the user, the hour or the settings of the shell.
export LC_ALL=C.UTF-8 TZ=UTC
umask 022

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

# Apart from target/debug and target/release, whose flags differ.
export CARGO_TARGET_DIR=$PWD/target/reproducible CARGO_INCREMENTAL=0
# Without links: debug symbols have the real path.
CARGO_HOME=$(realpath "${CARGO_HOME:-$HOME/.cargo}")
export CARGO_HOME

# Paths in panic messages and debug symbols. Of several that match, the last one counts.
maps=("$CARGO_HOME=/cargo" "$PWD=/rtad" "$CARGO_TARGET_DIR=/target")

# The separator of the encoded form is 0x1f, so that a path may contain spaces.
rustflags=$(printf -- '--remap-path-prefix=%s\x1f' "${maps[@]}")
export CARGO_ENCODED_RUSTFLAGS=${rustflags%$'\x1f'}

# C and assembler, of ring and zstd. The flags of cargo's `cc` are split as a shell does.
export CC_SHELL_ESCAPED_FLAGS=1
CFLAGS=$(printf -- "'-ffile-prefix-map=%s' " "${maps[@]}")
export CFLAGS
