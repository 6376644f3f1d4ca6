// Registers, evolves, is refused and decodes with franz-go's sr; prints one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/sr"
)

const (
	first  = `{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}`
	grown  = `{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"kg","type":"int","default":0}]}`
	broken = `{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"price","type":"int"}]}`
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	ctx := context.Background()
	client, err := sr.NewClient(sr.URLs(os.Args[1]))
	check(err)
	one, err := client.CreateSchema(ctx, "go-value", sr.Schema{Schema: first})
	check(err)
	two, err := client.CreateSchema(ctx, "go-value", sr.Schema{Schema: grown})
	check(err)
	_, err = client.CreateSchema(ctx, "go-value", sr.Schema{Schema: broken})
	var refused *sr.ResponseError
	errors.As(err, &refused)
	code := 0
	if refused != nil {
		code = refused.ErrorCode
	}
	compatible, err := client.CheckCompatibility(ctx, "go-value", -1, sr.Schema{Schema: broken})
	check(err)
	types, err := client.SupportedTypes(ctx)
	check(err)
	proto, err := client.CreateSchema(ctx, "go-proto-value", sr.Schema{
		Schema: `syntax = "proto3"; message P { string id = 1; }`, Type: sr.TypeProtobuf,
	})
	check(err)
	byID, err := client.SchemaByID(ctx, two.ID)
	check(err)
	type order struct {
		ID string `json:"id"`
	}
	var serde sr.Serde
	serde.Register(one.ID, order{}, sr.EncodeFn(json.Marshal), sr.DecodeFn(json.Unmarshal))
	data, err := serde.Encode(order{"a"})
	check(err)
	var decoded order
	check(serde.Decode(data, &decoded))
	versions, err := client.SubjectVersions(ctx, "go-value")
	check(err)
	deleted, err := client.DeleteSubject(ctx, "go-proto-value", sr.SoftDelete)
	check(err)
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"first": one.ID, "grown": two.ID, "version": two.Version, "refused": code,
		"compatible": compatible.Is, "types": len(types), "schema": byID.Schema, "decoded": decoded.ID,
		"versions": versions, "deleted": deleted, "proto": proto.Type == sr.TypeProtobuf,
	}))
}
