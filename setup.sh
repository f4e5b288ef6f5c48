#!/usr/bin/env bash
# Everything a fresh machine needs: Python 3.12, a virtual environment, bubblewrap and tmux. Safe to run again.
#   ./setup.sh             the environment of t1core, in .venv
#   ./setup.sh sglang      SGLang for a GPU in an environment of its own, .venv-sglang
#   ./setup.sh sglang-cpu  the same for a CPU without AMX
set -euo pipefail
cd "$(dirname "$0")"
SGLANG_GPU_VERSION=0.5.17

find_python() {
    # A python on PATH can be a shim that fails, so every candidate is executed.
    local version="$1" candidate
    for candidate in "${T1CORE_PYTHON:-}" "python$version" "$HOME"/.pyenv/versions/"$version"*/bin/"python$version" \
        "/usr/local/bin/python$version" /opt/python*/bin/"python$version" "/opt/homebrew/bin/python$version" \
        python3 python; do
        [ -n "$candidate" ] || continue
        if "$candidate" -c "import sys, venv, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != '$version')" \
            >/dev/null 2>&1; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    echo "t1core needs Python $version with the venv module, and found none that runs." >&2
    echo "Install it (for instance: apt-get install python$version-venv, pyenv install $version, or uv python install" >&2
    echo "$version) and, if it is not on PATH, name it: T1CORE_PYTHON=/path/to/python$version" >&2
    return 3
}

install_system_packages() {
    local missing=()
    command -v bwrap >/dev/null || missing+=(bubblewrap)
    command -v tmux >/dev/null || missing+=(tmux)
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing ${missing[*]}"
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null
    else
        echo "The sandbox needs ${missing[*]}. Install with: sudo apt-get install ${missing[*]}" >&2
        return 3
    fi
}

install_environment() {
    local profile="${T1CORE_PROFILE:-cpu}" python stamp kept
    if [ "$profile" != cpu ] && [ "$profile" != gpu ]; then
        echo "T1CORE_PROFILE=$profile is no profile: use cpu or gpu" >&2
        return 3
    fi
    stamp=$(cat pyproject.toml "constraints/$profile.txt" setup.sh | sha256sum | cut -d' ' -f1)
    if [ -x .venv/bin/t1 ] && [ "$(cat .venv/t1core-stamp 2>/dev/null)" = "$stamp" ]; then
        return 0
    fi
    python=$(find_python 3.12)
    # What one profile adds breaks another: flash-linear-attention's kernels fail where there is no GPU.
    kept=$(cat .venv/t1core-profile 2>/dev/null || echo "$profile")
    if [ "$kept" != "$profile" ] || ! .venv/bin/python -c '' 2>/dev/null; then
        "$python" -m venv --clear .venv
    fi
    echo "$profile" >.venv/t1core-profile
    echo "installing the $profile profile into .venv (a few minutes, about 7 GB the first time)"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -c "constraints/$profile.txt" -e '.[dev]'
    [ "$profile" != gpu ] || install_fused_kernels
    echo "$stamp" >.venv/t1core-stamp
}

install_fused_kernels() {
    # transformer-engine-torch is source whose setup imports torch, so it comes after torch and without build isolation.
    echo "installing the fused kernels (minutes where transformer-engine-torch has to be compiled)"
    if ! .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation \
        -c constraints/gpu.txt -e '.[fused]'; then
        echo "The gpu profile needs an NVIDIA driver and, where transformer-engine's project keeps no wheel for this" >&2
        echo "torch, a CUDA 13 toolkit (nvcc, named by CUDA_HOME), the cuDNN headers and a C++ compiler. Provide them" >&2
        echo "and run ./setup.sh again, or take the cpu profile: unset T1CORE_PROFILE" >&2
        return 3
    fi
}

install_sglang() {
    # SGLang pins versions of torch and transformers that are not ours, hence an environment of its own.
    local kind="$1" python version=3.12
    # The CPU's pins were made under Python 3.11.
    [ "$kind" = sglang-cpu ] && version=3.11
    python=$(find_python "$version")
    echo "installing $kind into .venv-sglang (a few minutes, about 3 GB for a CPU and 12 GB for a GPU)"
    "$python" -m venv --clear .venv-sglang
    if [ "$kind" = sglang-cpu ]; then
        # The list is whole, and torch's CPU build satisfies nobody's pin of the CUDA one.
        .venv-sglang/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
            -r constraints/sglang-cpu.txt || {
            echo "torch's CPU build (2.13.0+cpu) comes from PyTorch's own index: set PIP_EXTRA_INDEX_URL to it" >&2
            return 3
        }
    else
        .venv-sglang/bin/python -m pip install --quiet --disable-pip-version-check "sglang==$SGLANG_GPU_VERSION"
    fi
}

case "${1:-}" in
    "")
        install_system_packages
        install_environment
        ;;
    sglang | sglang-cpu) install_sglang "$1" ;;
    *) echo "setup.sh $1: no such part; give sglang, sglang-cpu or nothing" >&2 && exit 3 ;;
esac
