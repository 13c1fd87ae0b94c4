// Command generate writes the Go of kuadrant.proto, into the directory that it runs in. It needs no protoc: the descriptors of Envoy's
// messages come from its Go packages. The plugin is a tool of the module.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"

	_ "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3" // the descriptors that the file imports
)

// source is the file by its name in the registry of descriptors.
const source = "kuadrant/kuadrant.proto"

// plugin writes the messages; the service is four methods, which package rls lists.
const plugin = "protoc-gen-go"

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	compiler := protocompile.Compiler{SourceInfoMode: protocompile.SourceInfoStandard, Resolver: protocompile.ResolverFunc(resolve)}
	files, err := compiler.Compile(ctx, source)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: []string{source}, Parameter: proto.String("paths=source_relative")}
	request.ProtoFile = withImports(nil, map[string]bool{}, files[0])
	if err := generate(ctx, request); err != nil {
		return fmt.Errorf("%s: %w", plugin, err)
	}
	return nil
}

// resolve finds the source in this directory, and what it imports in the registry.
func resolve(name string) (r protocompile.SearchResult, err error) {
	if name != source {
		r.Desc, err = protoregistry.GlobalFiles.FindFileByPath(name)
		return r, err
	}
	text, err := os.ReadFile(path.Base(source))
	r.Source = bytes.NewReader(text)
	return r, err
}

// withImports appends a file behind all that it imports.
func withImports(to []*descriptorpb.FileDescriptorProto, seen map[string]bool, f protoreflect.FileDescriptor) []*descriptorpb.FileDescriptorProto {
	if seen[f.Path()] {
		return to
	}
	seen[f.Path()] = true
	for i := range f.Imports().Len() {
		to = withImports(to, seen, f.Imports().Get(i).FileDescriptor)
	}
	return append(to, protodesc.ToFileDescriptorProto(f))
}

// generate writes the files of the plugin.
func generate(ctx context.Context, request *pluginpb.CodeGeneratorRequest) error {
	input, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(output, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return errors.New(response.GetError())
	}
	for _, file := range response.GetFile() {
		if err := os.WriteFile(path.Base(file.GetName()), []byte(file.GetContent()), 0o600); err != nil {
			return err
		}
	}
	return nil
}
