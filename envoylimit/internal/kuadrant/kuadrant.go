// Package kuadrant has the messages of Kuadrant's rate limits. No code is generated: a program reads kuadrant.proto when it first needs it.
package kuadrant

import (
	"context"
	_ "embed"
	"strings"
	"sync"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	_ "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3" // the messages that the file imports
)

//go:embed kuadrant.proto
var text string

// File is kuadrant.proto.
var File = sync.OnceValue(func() protoreflect.FileDescriptor {
	const name = "kuadrant/kuadrant.proto"
	files, err := (&protocompile.Compiler{Resolver: protocompile.ResolverFunc(func(file string) (r protocompile.SearchResult, err error) {
		if file == name {
			return protocompile.SearchResult{Source: strings.NewReader(text)}, nil
		}
		r.Desc, err = protoregistry.GlobalFiles.FindFileByPath(file)
		return r, err
	})}).Compile(context.Background(), name)
	if err != nil {
		panic(err) // the file is embedded
	}
	return files[0]
})

// A Message is one of the file.
type Message struct{ *dynamicpb.Message }

// New returns an empty message.
func New(name protoreflect.Name) Message {
	return Message{dynamicpb.NewMessage(File().Messages().ByName(name))}
}

// With sets a field that is no message.
func (m Message) With(field protoreflect.Name, value any) Message {
	m.Set(m.Descriptor().Fields().ByName(field), protoreflect.ValueOf(value))
	return m
}

// Value returns a field.
func (m Message) Value(field protoreflect.Name) protoreflect.Value {
	return m.Get(m.Descriptor().Fields().ByName(field))
}

// As reads what a message has into another one, by the numbers of fields. Fields that the other one does not have, or of another type, are left out.
func As(from proto.Message, to proto.Message) error {
	data, err := proto.Marshal(from)
	if err != nil {
		return err
	}
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, to)
}
