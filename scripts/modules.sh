#!/bin/sh
# Runs the tests or the linter in every module below the root's: those of integrations and of examples, which have
# dependencies that users of the SDK do not pay for. quota/bench and tools have targets of their own.
#
# Usage: scripts/modules.sh test [FLAG...] | lint
set -eu
cd "$(dirname "$0")/.."
command=$1
shift

git ls-files --cached --others --exclude-standard -- '*/go.mod' ':!tools' ':!quota/bench' ':!**/testdata/**' | sort |
	while IFS= read -r file; do
		module=$(dirname "$file")
		echo "module $module"
		case $command in
		test) "${GO:-go}" test -C "$module" "$@" ./... </dev/null ;;
		lint) (cd "$module" && "$LINT" run ./... </dev/null) ;;
		*)
			echo "modules: $command is neither test nor lint" >&2
			exit 2
			;;
		esac
	done
