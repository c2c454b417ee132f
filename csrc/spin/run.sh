#!/usr/bin/env bash
# Explores every state of ring.pml and readers.pml: no promise may break, and each seeded bug must be found.
#   run.sh short    capacity 2, what a continuous build has time for (one or two minutes, 1 GB)
#   run.sh long     capacity 2 to 4, with both stops at once (about half an hour, 4 GB)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
length=${1:-short}

if ! command -v spin >/dev/null; then
    if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq spin >/dev/null
    fi
    command -v spin >/dev/null || { echo "spin is missing: Debian's package is named spin" >&2; exit 3; }
fi

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
case $length in
short) depth=4000000 capacities=(2) ;;
long) depth=40000000 capacities=(2 3 4) ;;
*) echo "usage: $0 short|long" >&2; exit 2 ;;
esac

failed=0
# explore EXPECTED DEFINITION...: one exploration of $model; EXPECTED is holds or found.
model=ring
explore() {
    local expected=$1 defs=("${@:2}") search=(-E) compile=(-DSAFETY)
    [[ $model == ring ]] || search=() # a state in which none can go on is the bug
    if [[ " ${defs[*]} " == *" -DENDS=1 "* ]]; then
        search=(-a -f) compile=(-DNFAIR=3) # an LTL formula, under weak fairness
    fi
    (cd "$build" && rm -f pan* && spin -a "${defs[@]}" "$here/$model.pml" >spin.log 2>&1 &&
        gcc -O1 -w "${compile[@]}" -DCOLLAPSE -DVECTORSZ=2048 -o pan pan.c) || { cat "$build/spin.log" >&2; exit 2; }
    (cd "$build" && ./pan "${search[@]}" -m$depth >pan.log 2>&1) || true
    local states outcome
    states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' "$build/pan.log")
    if grep -q "max search depth too small\|out of memory\|aborting" "$build/pan.log"; then
        outcome=incomplete
    elif grep -q "errors: 0$" "$build/pan.log"; then
        outcome=holds
    elif grep -q "errors: [1-9]" "$build/pan.log"; then
        outcome=found
    else
        outcome=incomplete
    fi
    printf '%-10s %12s states  %s %s\n' "$outcome" "$states" "$model" "${defs[*]//-D/}"
    if [[ $outcome != "$expected" ]]; then
        echo "expected: $expected" >&2
        grep -m 3 "pan:1\|error" "$build/pan.log" >&2 || true
        failed=1
    fi
}

for capacity in "${capacities[@]}"; do
    cap=-DCAP=$capacity
    explore holds $cap
    explore holds $cap -DDEATH
    explore holds $cap -DCALL_READER
    explore holds $cap -DLOOP
    explore holds $cap -DHOSTILE_WRITER
    explore holds $cap -DHOSTILE_READER
    if [[ $length == long ]]; then
        explore holds $cap -DCALL_WRITER
        explore holds $cap -DLOOP -DDEATH
    fi
done
explore holds -DCAP=2 -DHOSTILE_WRITER -DENDS=1
if [[ $length == long ]]; then
    explore holds -DCAP=2 -DHOSTILE_READER -DENDS=1
    explore holds -DCAP=2 -DCALL_READER -DCALL_WRITER
fi

# Without the fence after publishing, and before the last look; without waking.
explore found -DCAP=2 -DNO_FENCE
explore found -DCAP=2 -DNO_SLEEPER_FENCE
explore found -DCAP=2 -DNO_WAKE
# Counters that overtake the elements, on either side.
explore found -DCAP=2 -DNO_RELEASE
explore found -DCAP=2 -DNO_ACQUIRE
explore found -DCAP=2 -DLATE_COPY_OUT
# One bit for both sides' attention: each clears the other's.
explore found -DCAP=2 -DCALL_READER -DCALL_WRITER -DONE_ATTENTION_BIT
# Arming without a second look.
explore found -DCAP=2 -DLOOP -DNO_SECOND_LOOK
# The peer's counters unchecked; waits that never look at the clock.
explore found -DCAP=2 -DHOSTILE_WRITER -DNO_CHECK
explore found -DCAP=2 -DHOSTILE_READER -DNO_CHECK
explore found -DCAP=2 -DHOSTILE_WRITER -DENDS=1 -DNO_DEADLINE
explore found -DCAP=2 -DHOSTILE_READER -DENDS=1 -DNO_DEADLINE

# One event flag for several readers.
model=readers
explore holds
explore found -DTWO_STEPS
explore found -DNO_COUNT
exit $failed
