# Tools of the fuzzing scripts, which source this file in the project's root.

version=0.13.2
export PATH=$PWD/target/tools/bin:$PATH
if [ "$(cargo fuzz --version 2>/dev/null)" != "cargo-fuzz $version" ]; then
    cargo install --quiet --locked --root target/tools "cargo-fuzz@$version"
fi
bash tests/setup.sh fuzz

# The folder with a target's seeds.
seeds() {
    case $1 in
        custom_protobuf) echo fuzz/corpus/ocean ;;
        custom_json) echo fuzz/corpus/api ;;
        *) echo "fuzz/corpus/$1" ;;
    esac
}
