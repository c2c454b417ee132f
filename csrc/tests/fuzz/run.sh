#!/usr/bin/env bash
# Fuzzes what C reads of a peer's memory, under ASan and UBSan.
#   run.sh fuzz SECONDS [TARGET...]    libFuzzer, each target for so long; what it finds is kept in crash-*
#   run.sh replay COUNT [TARGET...]    the corpus and COUNT random inputs through gcc's build, without a fuzzer
# The targets are ring, packet, burst and messages; corpus/TARGET holds inputs that reach far, and each one that ever broke.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
way=${1:-} amount=${2:-60}
targets=("${@:3}")
((${#targets[@]})) || targets=(ring packet burst messages)
sources=()
for name in ring_buffer event_flag waiter rhythm cpu_contention trap trace packet counters executor null_executor burst_client burst_server client/msgpack client/messages; do
    sources+=("$here/../../$name.c")
done
flags=(-std=c11 -g -D_GNU_SOURCE -I"$here/../.." -Wall -Wextra -Wconversion -Wshadow -Werror -fno-omit-frame-pointer
    -I"$here/../../../src/nnburst/executor/include")
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT

case $way in
fuzz)
    if ! command -v clang >/dev/null; then
        if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
            apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq clang >/dev/null
        fi
        command -v clang >/dev/null || { echo "clang is missing: Debian's package is named clang" >&2; exit 3; }
    fi
    for target in "${targets[@]}"; do
        clang "${flags[@]}" -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
            "$here/$target.c" "${sources[@]}" -lpthread -ldl -o "$build/$target"
        mkdir -p "$build/new-$target"
        "$build/$target" -max_total_time="$amount" -max_len=2048 -timeout=10 -print_final_stats=1 \
            "$build/new-$target" "$here/corpus/$target" >"$build/log" 2>&1 || { cat "$build/log" >&2; exit 1; }
        if [[ -n ${NNBURST_CORPUS:-} ]]; then # what reaches something new, in as few inputs as possible
            mkdir -p "$NNBURST_CORPUS/$target"
            "$build/$target" -merge=1 "$NNBURST_CORPUS/$target" "$here/corpus/$target" "$build/new-$target" \
                >"$build/log.merge" 2>&1
        fi
        printf '%-8s %s\n' "$target" "$(sed -n 's/^#[0-9]*\tDONE *//p' "$build/log") runs:$(
            sed -n 's/^stat::number_of_executed_units: *//p' "$build/log")"
    done
    ;;
replay)
    compile=("${CC:-gcc}" "${flags[@]}" -O1 -fsanitize=address,undefined -fno-sanitize-recover=all)
    mkdir "$build/objects" # what the targets share is compiled once
    (cd "$build/objects" && "${compile[@]}" -c "$here/replay.c" "${sources[@]}")
    for target in "${targets[@]}"; do
        "${compile[@]}" "$here/$target.c" "$build"/objects/*.o -lpthread -ldl -o "$build/$target"
        printf '%-8s ' "$target"
        "$build/$target" "$amount" "$here/corpus/$target"/*
    done
    ;;
*)
    echo "usage: $0 fuzz SECONDS [TARGET...] | replay COUNT [TARGET...]" >&2
    exit 2
    ;;
esac
