#!/bin/sh
# Looks for words of scripts/prose.txt in what people read: pages, comments and texts of hand-written Go besides tests, the help of
# the command and the descriptions of the schema. Prints each as file:line: word → what to write instead, and fails if there is one.
# A comment of a test says what the test checks, and not what it "has others do".
# Files that scripts/prose_allow.txt names are left out, by path or by the beginning of one; an entry without such words is an error.
#
# Usage: scripts/prose.sh [file...]   all files, or these whether or not they are left out
set -eu
cd "$(dirname "$0")/.."

allow=scripts/prose_allow.txt
[ $# -eq 0 ] || allow=/dev/null
if [ $# -eq 0 ] && git grep -nE '^\s*// (Test|Benchmark|Fuzz)[A-Za-z0-9_]* has ' -- '*_test.go'; then
	echo 'comments of tests: "In TestX, a process writes …" or "TestX checks that …" instead' >&2
	exit 1
fi
if [ $# -gt 0 ]; then
	printf '%s\n' "$@"
else
	git ls-files '*.md' '*.go' spec/schema.yaml Makefile | grep -v -e '_gen\.go$' -e '_test\.go$' -e /testdata/ -e '^docs/schema\.md$'
fi | LC_ALL=C awk -v words=scripts/prose.txt -v allow="$allow" '
function check(file, line, text,    low, i, at, rest, found) {
	low = " " tolower(text) " "
	for (i = 1; i <= n; i++) {
		rest = low
		if (match(rest, "[^a-z0-9_]" word[i] "[^a-z0-9_]")) {
			found = substr(rest, RSTART + 1, RLENGTH - 2)
			entry = allowed(file)
			if (entry) { used[entry] = 1; continue }
			print file ":" line ": " found " → " advice[i]
			hits++
		}
	}
}
function allowed(file,    i) {
	for (i = 1; i <= m; i++) if (index(file, path[i]) == 1) return i
	return 0
}
# page checks a page of Markdown, besides its code.
function page(file,    text, line, code) {
	while ((getline text < file) > 0) {
		line++
		if (text ~ /^ *(```|~~~)/) { code = !code; continue }
		if (code) continue
		gsub(/`[^`]*`/, "_", text)
		gsub(/\]\([^)]*\)/, "]", text)
		check(file, line, text)
	}
	close(file)
}
# program checks the comments and texts of a Go file.
function program(file,    text, line, raw, rest, i, c, part, quoted) {
	while ((getline text < file) > 0) {
		line++
		if (line == 1 && text ~ /^\/\/ Code generated /) break
		part = ""; quoted = 0
		for (rest = text; rest != "";) {
			if (raw) {
				i = index(rest, "`")
				part = part (i ? substr(rest, 1, i - 1) : rest) " | "
				if (!i) break
				raw = 0; rest = substr(rest, i + 1); continue
			}
			if (!match(rest, /["`]|\/\/|\047/)) break
			c = substr(rest, RSTART, 1)
			rest = substr(rest, RSTART + 1)
			if (c == "/") { # the name that a comment documents is no word of its text
				rest = substr(rest, 2)
				if (RSTART == 1 || text ~ /^[ \t]*\/\//) sub(/^ [A-Za-z0-9_]+ /, " _ ", rest)
				part = part rest; break
			}
			if (c == "`") { raw = 1; continue }
			if (c == "\047") { if (match(rest, /^(\\.[^\047]*|[^\\])\047/)) rest = substr(rest, RLENGTH + 1); continue }
			if (!match(rest, /^([^"\\]|\\.)*"/)) break
			part = part substr(rest, 1, RLENGTH - 1) " | "
			rest = substr(rest, RLENGTH + 1)
		}
		if (part != "") check(file, line, part)
	}
	close(file)
}
function plain(file,    text, line) {
	while ((getline text < file) > 0) check(file, ++line, text)
	close(file)
}
BEGIN {
	while ((getline text < words) > 0) {
		if (text ~ /^#/ || text == "") continue
		split(text, cell, "\t"); n++
		word[n] = "(" cell[1] ")"; advice[n] = cell[2]
	}
	while ((getline text < allow) > 0) if (text !~ /^#/ && text != "") path[++m] = text
}
/\.md$/ { page($0); next }
/\.go$/ { program($0); next }
{ plain($0) }
END {
	for (i = 1; i <= m; i++) if (!(i in used)) { print allow ": " path[i] " has no such words: remove the entry"; hits++ }
	exit hits > 0
}'
