#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# lint.sh: every static check. All of them run, and name what they find; the
# exit status is 1 if any found something.
# shellcheck disable=SC2317 # the functions are called through check
set -euo pipefail
cd "$(dirname "$0")/.."

readonly STATICCHECK=honnef.co/go/tools/cmd/staticcheck@v0.8.2
readonly PURE=(./correlate/... ./export/... ./pprofout/... ./recording/... ./report/... ./serve/... ./timeline/... ./top/...)

# check NAME COMMAND...: runs a check, whose output and status tell what is wrong.
failed=0
check() {
    local name=$1
    shift
    if "$@"; then
        echo "ok    $name"
    else
        echo "FAIL  $name"
        failed=1
    fi
}

# quiet COMMAND...: a command that reports by output alone; any output is a fault.
quiet() {
    local out
    out=$("$@" 2>&1) && [ -z "$out" ] && return
    printf '%s\n' "$out"
    return 1
}

# files PATTERN...: tracked files that exist.
files() {
    git ls-files -z --cached -- "$@" | xargs -0 -r ls -1d 2>/dev/null
}

mapfile -t go_files < <(files '*.go')
mapfile -t c_files < <(files '*.c' '*.h' '*.cc' '*.hpp')
mapfile -t py_files < <(files '*.py')
mapfile -t sh_files < <(files '*.sh' .ci/run)
mapfile -t page_files < <(files '*.js' '*.css' '*.html')

# Every source file of ours says under which licence it stands.
spdx() {
    local missing
    missing=$(grep -L 'SPDX-License-Identifier:' "${c_files[@]}" "${py_files[@]}" "${sh_files[@]}" "${page_files[@]}") || true
    [ -z "$missing" ] || printf 'no SPDX line: %s\n' "$missing"
    [ -z "$missing" ]
}

# The pure packages know neither the kernel nor NVML, whatever they import.
pure_imports() {
    ! go list -deps "${PURE[@]}" | grep -E '^(github.com/cilium/ebpf|github.com/NVIDIA/|stageprof/(agent|bpf|gpu))'
}

python_syntax() {
    "${PYTHON:-python3}" - "$@" <<'PY'
import ast, sys
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as f:
        ast.parse(f.read(), path, feature_version=(3, 8))
PY
}

check gofmt quiet gofmt -l "${go_files[@]}"
check 'go vet' go vet -tags torch,browser,axe,perfetto,pyspy ./...
check 'go vet, without cgo, arm64' env CGO_ENABLED=0 GOARCH=arm64 go vet ./...
check 'go vet, pure packages on darwin' env CGO_ENABLED=0 GOOS=darwin go vet "${PURE[@]}"
check 'imports of the pure packages' pure_imports
check staticcheck go run "$STATICCHECK" -tags torch,browser,axe,perfetto,pyspy ./...
check clang-format clang-format --dry-run -Werror "${c_files[@]}"
check shellcheck shellcheck "${sh_files[@]}"
check 'Python syntax of 3.8' python_syntax "${py_files[@]}"
check 'licence lines' spdx
exit "$failed"
