#!/usr/bin/env bash
# Builds and runs the C tests under a sanitizer.
#   run.sh address [ROUNDS]    hostile counters under ASan and UBSan (10^8 rounds unless given)
#   run.sh thread [MESSAGES]   two threads under TSan (10^7 messages unless given)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
flags=(-std=c11 -O2 -g -D_GNU_SOURCE -Wall -Wextra -Wconversion -Wshadow -Werror -fno-omit-frame-pointer)
ring=("$here/../ring_buffer.c" "$here/../waiter.c" "$here/../rhythm.c" "$here/../event_flag.c")
cc=${CC:-gcc}
case ${1:-} in
address)
    "$cc" "${flags[@]}" -fsanitize=address,undefined -fno-sanitize-recover=all \
        "$here/hostile_counters.c" "${ring[@]}" -o "$build/test"
    # Two processes with seeds of their own share the rounds.
    rounds=${2:-100000000}
    "$build/test" $((rounds / 2)) 1 &
    "$build/test" $((rounds - rounds / 2)) 2
    wait $!
    ;;
thread)
    "$cc" "${flags[@]}" -fsanitize=thread "$here/ring_stress.c" "${ring[@]}" -lpthread -o "$build/test"
    "$build/test" "${2:-10000000}"
    ;;
*)
    echo "usage: $0 address|thread [COUNT]" >&2
    exit 2
    ;;
esac
