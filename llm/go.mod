module github.com/zlimit/zlimit-go/llm

go 1.26.0

replace github.com/zlimit/zlimit-go => ../

require (
	github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream v1.7.26
	go.uber.org/goleak v1.3.0
	pgregory.net/rapid v1.3.0
)

require github.com/aws/smithy-go v1.28.8 // indirect
