#!/usr/bin/env bash
# Builds a C test with everything of csrc/ that needs no Python, and runs it.
#   run.sh address|thread|none PROGRAM [ARGUMENT...]
# address is ASan with UBSan, thread is TSan; PROGRAM.c lies here and lists its arguments. With OBJECTS=FOLDER
# what was compiled stays there for the next program; with TRAPS=1 that has trap points for every program.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if (($# < 2)); then
    echo "usage: $0 address|thread|none PROGRAM [ARGUMENT...]" >&2
    exit 2
fi
sanitizer=$1 program=$2
shift 2
flags=(-std=c11 -O2 -g -D_GNU_SOURCE -Wall -Wextra -Wconversion -Wshadow -Werror -fno-omit-frame-pointer
    -I"$here/../../src/nnburst/executor/include")
case $sanitizer in
address) flags+=(-fsanitize=address,undefined -fno-sanitize-recover=all) ;;
thread) flags+=(-fsanitize=thread) ;;
none) ;;
*) echo "$0: no sanitizer $sanitizer" >&2; exit 2 ;;
esac
sources=()
for name in ring_buffer event_flag waiter rhythm cpu_contention trap trace packet counters executor null_executor burst_client burst_server steps liveness pool_map reply_reader receive_lock queue; do
    sources+=("$here/../$name.c")
done
kind=$sanitizer
if [[ -n ${TRAPS:-} ]] || grep -q NNBURST_TRAPS "$here/$program.c"; then
    flags+=(-DNNBURST_TRAPS)
    kind+=-traps
fi
if grep -q 'nnburst\.h' "$here/$program.c"; then # the client of served networks is no part of the C module
    sources+=("$here"/../client/*.c "$here/../capi/environment.c" "$here/../child.c")
    flags+=(-I"$here/.." -I"$here/../../src/nnburst/capi/include" -DNNBURST_NO_TRACE_POINTS)
    kind+=-client
fi
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
objects=${OBJECTS:-$build}/$kind
if [[ ! -d $objects ]]; then
    mkdir -p "$build/objects"
    (cd "$build/objects" && "${CC:-gcc}" "${flags[@]}" -c "${sources[@]}")
    mkdir -p "$(dirname "$objects")" && mv -T "$build/objects" "$objects"
fi
"${CC:-gcc}" "${flags[@]}" "$here/$program.c" "$objects"/*.o -lpthread -ldl -o "$build/$program"
${RUNNER:-} "$build/$program" "$@" # such as: qemu-aarch64 -L /usr/aarch64-linux-gnu
