#!/bin/sh
# Prints what programs weigh: stripped binaries of a program that calls DynamoDB with the bare SDK, and of programs that
# open a limiter on each kind of store. `make size` runs it.
set -eu
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

program() { # NAME IMPORTS BODY
	mkdir "$dir/$1"
	printf 'package main\n\nimport (\n%s\n)\n\nfunc main() {\n\tctx := context.Background()\n%s\n}\n' "$2" "$3" >"$dir/$1/main.go"
	"${GO:-go}" build -trimpath -ldflags='-s -w' -o "$dir/$1/main" "$dir/$1/main.go"
	bytes=$(wc -c <"$dir/$1/main")
	packages=$("${GO:-go}" list -deps "$dir/$1/main.go" | wc -l)
	[ "$1" != sdk ] || bare=$bytes
	awk -v name="$1" -v bytes="$bytes" -v packages="$packages" -v bare="$bare" \
		'BEGIN { printf "%-10s %5.1f MB  %4.2f  %d packages\n", name, bytes / 1e6, bytes / bare, packages }'
}

# The bare program does what a limiter on DynamoDB is for: one conditional write.
program sdk '	"context"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"' '	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		panic(err)
	}
	if _, err := dynamodb.NewFromConfig(cfg).UpdateItem(ctx, &dynamodb.UpdateItemInput{}); err != nil {
		panic(err)
	}'

acquire() { # DSN
	printf '\tl, err := zlimit.Open(ctx, "%s")\n\tif err != nil {\n\t\tpanic(err)\n\t}\n\tif _, err := l.Acquire(ctx, zlimit.Request{}); err != nil {\n\t\tpanic(err)\n\t}' "$1"
}
program memory '	"context"
	"github.com/zlimit/zlimit-go/zlimit"' "$(acquire memory:)"
program dynamodb '	"context"
	"github.com/zlimit/zlimit-go/zlimit"
	_ "github.com/zlimit/zlimit-go/zlimit/dynamo"' "$(acquire dynamodb:limits)"
program sqlite '	"context"
	"github.com/zlimit/zlimit-go/zlimit"
	_ "github.com/zlimit/zlimit-go/zlimit/sqlite"' "$(acquire sqlite:limits.db)"
