module github.com/zlimit/zlimit-go/connectlimit

go 1.26.0

replace github.com/zlimit/zlimit-go => ../

require (
	connectrpc.com/connect v1.21.1
	github.com/zlimit/zlimit-go v0.0.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261019180522-ce908d29299b
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/maypok86/otter/v2 v2.4.0 // indirect
	github.com/oklog/ulid/v2 v2.1.2 // indirect
	go.uber.org/goleak v1.3.0
	golang.org/x/sync v0.24.0 // indirect
)
