#!/usr/bin/env bash
# Runs scripts/test in environments as users have them, and prints one line for each.
#
#   scripts/check_environments.sh                   every environment but `together` and the processors
#   scripts/check_environments.sh busy-core user    these alone
#   PYTHONS="python3.12 /opt/python3.14/bin/python3" scripts/check_environments.sh pythons
#
# Each run starts from a fresh clone of HEAD with an empty home folder, under `env -i` with PATH, HOME and LANG
# and what the environment adds. llama.cpp's builds are copied in: building them is not what is checked here.
#
#   bare       nothing else
#   locale     LC_ALL=de_DE.UTF-8 and TZ=Pacific/Chatham; needs that locale
#   folder     a clone whose path holds spaces and umlauts
#   user       an ordinary user; needs root, and interpreters that the user can run
#   busy-core  another program keeps one core busy
#   together   user, folder and locale at once
#   pythons    every interpreter in PYTHONS, one after the other
#   lowest     the lowest versions of all packages that pyproject.toml declares: tests without llama.cpp alone
#   processor-v2, processor-v3, processor-v4, processor-native
#              tests/real alone, with a llama.cpp that computes as on another x86 processor
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

cache=${GGUFSPEC_CACHE:-$HOME/.cache/ggufspec}
logs=$(mktemp -d "${TMPDIR:-/tmp}/check-environments.XXXXXX")
chmod 755 "$logs"
failures=0

# check NAME [--user] [--folder NAME] [--processor LEVEL] [VARIABLE=value ...]
check() {
    local name=$1 as_user='' folder=ggufspec processor='' tests=()
    shift
    while [[ ${1:-} == --* ]]; do
        case $1 in
            --user) as_user=nobody && shift ;;
            --folder) folder=$2 && shift 2 ;;
            --processor) processor=$2 && tests=(-n 4 --dist worksteal -m 'not alone' tests/real) && shift 2 ;;
        esac
    done
    local place=$logs/$name command=(env -i PATH="$PATH" HOME="$logs/$name/home" LANG=C.UTF-8)
    for variable in "${!PIP_@}" "${!UV_@}" "${!SSL_CERT_@}"; do
        command+=("$variable=${!variable}")
    done
    command+=("$@" "$place/$folder/scripts/test" "${tests[@]}")
    mkdir -p "$place/home/.cache/ggufspec"
    git clone --quiet --no-hardlinks . "$place/$folder"
    [[ ! -d $cache/builds ]] || cp -r "$cache/builds" "$cache/sources" "$place/home/.cache/ggufspec/"
    if [[ $processor ]]; then
        replace_library "$name" "$processor" "$place/home/.cache/ggufspec" || return
    fi
    if [[ $as_user ]]; then
        chown -R "$as_user": "$place"
        command=(setpriv --reuid="$as_user" --regid="$(id -g "$as_user")" --clear-groups "${command[@]}")
    fi
    local started=$SECONDS code=0 summary
    (cd / && "${command[@]}") >"$place.log" 2>&1 </dev/null || code=$?
    summary=$(grep -E '^(=+ )?[0-9]+ (passed|failed)' "$place.log" | tr -d '=' | paste -sd ';') # of two runs of pytest
    printf '%-22s exit %-3s %3d min  %s\n' \
        "$name" "$code" $(((SECONDS - started + 30) / 60)) "${summary:-see $place.log}"
    if ((code)); then
        failures=$((failures + 1))
        grep -E '^(FAILED|ERROR) ' "$place.log"
    else
        rm -rf "$place"
    fi
}

# Let the llama.cpp in a cache compute as on another processor; prints why where that cannot be.
replace_library() {
    local name=$1 processor=$2 code=0 reason
    reason=$(GGUFSPEC_CACHE=$3 .venv/bin/python scripts/use_processor.py "$processor" 2>"$logs/$name.log") || code=$?
    if ((code == 3)); then # as scripts/use_processor.py says
        printf '%-22s not run: %s\n' "$name" "$reason"
    elif ((code)); then
        printf '%-22s not run: see %s\n' "$name" "$logs/$name.log"
        failures=$((failures + 1))
    fi
    return "$code"
}

busy_core() {
    taskset -c 0 sh -c 'while :; do :; done' &
    local burner=$!
    trap 'kill "$burner" 2>/dev/null' EXIT
    check busy-core
    kill "$burner"
    trap - EXIT
}

# The tests that need no llama.cpp, by the lowest versions that are declared; uv chooses them.
lowest() {
    local place=$logs/lowest code=0 settings
    git clone --quiet --no-hardlinks . "$place"
    mapfile -t settings < <(.venv/bin/python scripts/pip_settings.py)
    (PATH=$PWD/.venv/bin:$PATH && cd "$place" && env "${settings[@]}" scripts/lock --lowest lowest.txt &&
        REQUIREMENTS=lowest.txt scripts/setup --no-build &&
        .venv/bin/pytest -q -n auto --ignore tests/real --ignore tests/browser) >"$place.log" 2>&1 </dev/null || code=$?
    printf '%-22s exit %-3s          %s\n' lowest "$code" "$(tail -1 "$place.log" | tr -d =)"
    if ((code)); then
        failures=$((failures + 1))
        grep -E '^(FAILED|ERROR) ' "$place.log"
    fi
}

environments=("$@")
((${#environments[@]})) || environments=(bare locale folder user busy-core pythons lowest)
for environment in "${environments[@]}"; do
    case $environment in
        bare) check bare ;;
        locale)
            if locale -a | grep -qix 'de_DE.utf-\?8'; then
                check locale LC_ALL=de_DE.UTF-8 TZ=Pacific/Chatham
            else
                echo "locale                 not run: the locale de_DE.UTF-8 is not installed"
            fi
            ;;
        folder) check folder --folder 'Größe und Maß' ;;
        user)
            if [[ $(id -u) == 0 ]]; then
                check user --user ${USER_PYTHON:+PYTHON="$USER_PYTHON"}
            else
                echo "user                   not run: only root can become another user"
            fi
            ;;
        together)
            check together --user --folder 'Größe und Maß' LC_ALL=de_DE.UTF-8 TZ=Pacific/Chatham \
                ${USER_PYTHON:+PYTHON="$USER_PYTHON"}
            ;;
        busy-core) busy_core ;;
        processor-v2 | processor-v3 | processor-v4 | processor-native)
            check "$environment" --processor "${environment#processor-}"
            ;;
        lowest) lowest ;;
        pythons)
            for python in ${PYTHONS:-}; do
                check "$("$python" -c 'import sys; print("python-%d.%d.%d" % sys.version_info[:3])')" \
                    PYTHON="$(command -v "$python")"
            done
            ;;
        *)
            echo "check_environments: no environment is called '$environment'" >&2
            exit 2
            ;;
    esac
done
exit $((failures > 0))
