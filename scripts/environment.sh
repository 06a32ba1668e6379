# What scripts/demo, scripts/test, scripts/lock and benchmarks/run share; sourced, not run.
#
# Leaves the caller in the repository's folder. Bash 3.2 (macOS) is enough.

set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$(pwd -P)

# A virtual environment must see its own packages and nothing else.
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV
# Else every process that is started would compile all that it imports anew.
unset PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
# Versions come from the lock file alone, whatever else the machine's pip is told.
export PIP_CONSTRAINT=/dev/null PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0

say() { printf '==> %s\n' "$*"; }

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# Sets $python to a Python of 3.11 or newer that can make virtual environments. A command may be
# there and not work (a version manager's stand-in), so each is tried rather than looked up.
find_python() {
    local candidate without_venv=
    for candidate in python3.11 python3 python3.12 python3.13 python3.14 python; do
        quietly "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || continue
        if quietly "$candidate" -c 'import ensurepip, venv'; then
            python=$(command -v "$candidate")
            return
        fi
        without_venv=$candidate
    done
    if [ -n "$without_venv" ]; then
        fail "$without_venv cannot make virtual environments: install its venv package" \
            "(on Debian and Ubuntu: python3-venv)."
    fi
    fail "no Python 3.11 or newer found (tried python3, python3.11 to python3.14, python)." \
        "Install one and run this again."
}

# environment NAME LOCK: makes or reuses the virtual environment NAME with exactly what LOCK
# pins, and this project in it as an editable install; puts its commands first on PATH.
#
# NAME/made-from says what the packages came from, NAME/project-from what the project was
# installed from. Each is written last: an environment left half made has none, one made from
# something else or at another place has a different one, and either way it is made anew.
environment() {
    local venv=$root/$1 lock=$2 made_from finds_pip finds_project
    find_python
    made_from=$(
        printf 'place %s\npython %s\n' "$venv" "$("$python" -c 'import sys; print(sys.version)')"
        cat "$lock"
    )
    finds_pip='import pip'
    finds_project='import importlib.util as i, sys; sys.exit(i.find_spec("aguia") is None)'

    if is_from "$venv/made-from" "$made_from" && quietly "$venv/bin/python" -c "$finds_pip"; then
        say "Reusing $1 ($lock is unchanged)"
    else
        say "Making $1 with $("$python" --version), packages from $lock"
        rm -rf "$venv"
        "$python" -m venv "$venv" || fail "$python could not make a virtual environment."
        "$venv/bin/python" -m pip install -qq --require-hashes --no-deps --only-binary :all: \
            --no-compile -r "$lock" || fail "the packages of $lock could not be installed."
        printf '%s\n' "$made_from" >"$venv/made-from"
    fi

    if ! is_from "$venv/project-from" "$(cat pyproject.toml)" ||
        ! quietly "$venv/bin/python" -c "$finds_project"; then
        say "Installing this project into $1 (editable)"
        rm -f "$venv/project-from"
        "$venv/bin/python" -m pip install -qq --no-index --no-deps --no-build-isolation \
            --editable . || fail "the project itself could not be installed."
        cat pyproject.toml >"$venv/project-from"
    fi
    export PATH="$venv/bin:$PATH"
}

# npm_packages FOLDER VARIABLE: the npm packages that the lock file in FOLDER pins, unless the
# environment's VARIABLE names the node_modules folder where they are already.
#
# Where they can't be had it calls `without_npm FOLDER WHY`, which the script defines.
# node_modules/.made-from is written last, as in environment().
npm_packages() {
    local folder=$1 variable=$2 made_from
    if [ -n "${!variable:-}" ]; then
        say "Using the npm packages in ${!variable} for $folder"
        return
    fi
    if ! quietly command -v node || ! quietly command -v npm; then
        without_npm "$folder" "Node or npm is missing"
        return
    fi
    if ! quietly node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)'; then
        without_npm "$folder" \
            "Node 18 or newer is needed, this one is $(node --version 2>&1 | head -n 1)"
        return
    fi
    made_from=$(node --version && cat "$folder/package.json" "$folder/package-lock.json")
    if is_from "$folder/node_modules/.made-from" "$made_from"; then
        say "Reusing the npm packages of $folder (its package-lock.json is unchanged)"
        return
    fi
    say "Installing the npm packages of $folder/package-lock.json"
    (cd "$folder" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) >/dev/null ||
        fail "the npm packages of $folder could not be installed."
    printf '%s\n' "$made_from" >"$folder/node_modules/.made-from"
}

# debian_package COMMAND PACKAGE: with CI=true, on a Debian system and as root, installs PACKAGE
# where COMMAND is missing. On other people's machines that is not for a script to do.
debian_package() {
    local command=$1 package=$2
    if quietly command -v "$command"; then
        return
    fi
    if [ "${CI:-}" != true ]; then
        say "$command is missing: the tests that need it will be skipped"
    elif [ "$(id -u)" != 0 ] || ! quietly command -v apt-get; then
        say "$command is missing: the tests that need it will fail"
    else
        say "Installing $package, for the command $command"
        {
            apt-get -qq update &&
                DEBIAN_FRONTEND=noninteractive \
                    apt-get -qq install --yes --no-install-recommends "$package"
        } >/dev/null || fail "$package could not be installed."
    fi
}

# is_from FILE TEXT: whether FILE is there and holds TEXT.
is_from() { [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]; }

quietly() { "$@" >/dev/null 2>&1; }
