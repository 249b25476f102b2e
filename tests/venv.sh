# The Python environment of the tests that have another side written in Python: target/venv, shared by them.
#
#   . tests/venv.sh; need_python_packages NAME    # run in the root; installs tests/NAME/requirements.txt once; sets $venv
#                    need_python_packages FOLDER/NAME  # the same of another folder
venv=$PWD/target/venv

make_venv() {
    rm -rf "$venv"
    python3 -m venv "$venv" 2>/dev/null && return
    # Debian's python3 comes without ensurepip.
    [ "$(id -u)" = 0 ] || { echo "python3 -m venv does not work: install python3-venv" >&2; exit 1; }
    apt-get update -qq && apt-get install -qq -y python3-venv >/dev/null
    rm -rf "$venv"
    python3 -m venv "$venv"
}

need_python_packages() {
    local folder=tests/$1
    if [[ $1 == */* ]]; then folder=$1; fi
    local wanted=$folder/requirements.txt installed=$venv/${1//\//-}-requirements.txt
    if cmp -s "$wanted" "$installed"; then return; fi
    "$venv/bin/python3" -c 'import pip' 2>/dev/null || make_venv
    # Not bin/pip: that names the place where it was made, and a checkout may have been moved or copied.
    "$venv/bin/python3" -m pip install --quiet --disable-pip-version-check --requirement "$wanted"
    cp "$wanted" "$installed"
}
