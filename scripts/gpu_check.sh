#!/usr/bin/env bash
# Checks everything that needs a GPU, on a bare machine: a GPU, its driver, CUDA 13, Python 3.11 or newer, no network.
#
#   scripts/gpu_check.sh part1          smoke test, layers, memory, 70B with 8B, loads: at most 10 minutes
#   scripts/gpu_check.sh part2          engines, forecasts, commands, experts, 8B with 1B, heads: 10 minutes
#   scripts/gpu_check.sh --cpu          the same steps with small shapes on a CPU, in one call of at most 8 minutes
#                                       (--smallest: about 2 minutes)
#   scripts/gpu_check.sh --pack FOLDER  where there is a network: gather what the machine needs, at most 60 MiB
#
#   --bin FOLDER  prebuilt programs (or GGUFSPEC_LLAMA); without them, they are built from the carried source
#   --out FOLDER  gets summary.md (for docs/gpu.md), partN.json, logs.tar.gz (tests/logs/… in it), bundle/ and bundle.zip
#                 of all benches; $OUT, else gpu-check
#   --time S      seconds that this call may take, by default 590, with --cpu 480; what does not fit is listed as not run
#
# Every call goes on where the last one ended, as long as --out and the work folder are there.
# The carry (GPU_CHECK_CARRY, by default .gpu-check in the repository): wheels/ and llama.cpp.tar.xz. The repository itself
# and the embedded pair in models/ travel beside it. Models and results go to GPU_CHECK_WORK, up to 55 GB of them.
set -euo pipefail
started=$(date +%s)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
carry=${GPU_CHECK_CARRY:-$root/.gpu-check}
work=${GPU_CHECK_WORK:-${TMPDIR:-/tmp}/ggufspec-gpu-check}
mkdir -p "$work"

python=${PYTHON:-}
if [[ -z $python ]]; then
    python=$root/.venv/bin/python
    [[ -x $python ]] || python=python3
fi
if [[ -d $carry/wheels ]]; then
    if [[ ! -e $work/site.done ]]; then
        "$python" -m pip install -q --no-index --no-deps --no-compile --target "$work/site" "$carry"/wheels/*.whl
        # the package is not installed, only on the path: its version is asked for all the same
        version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/pyproject.toml")
        mkdir -p "$work/site/ggufspec-$version.dist-info"
        printf 'Metadata-Version: 2.1\nName: ggufspec\nVersion: %s\n' "$version" \
            > "$work/site/ggufspec-$version.dist-info/METADATA"
        touch "$work/site.done"
    fi
    site=:$work/site
fi
export PYTHONPATH=$root/scripts:$root${site:-}${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
export PATH=$PATH:$work/site/bin # cmake and ninja
exec "$python" -m gpu_check --work "$work" --carry "$carry" --started "$started" "$@"
