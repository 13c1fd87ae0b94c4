package emit

import (
	"fmt"
	"slices"
	"strings"

	. "github.com/dave/jennifer/jen"

	"github.com/zlimit/zlimit-go/gen/internal/schema"
)

// definition writes the versions of the layout, and the table for CloudFormation.
func definition(f *file, s *schema.Schema) {
	f.doc("SchemaVersion is the version of the layout that this package reads and writes.")
	f.Const().Id("SchemaVersion").Op("=").Lit(s.Version)
	f.doc("ClientMinVersion is the version of the oldest client that may use a table of this layout.")
	f.Const().Id("ClientMinVersion").Op("=").Lit(s.ClientMinVersion)
	f.doc("TTLAttribute is the attribute that holds the time of expiry, in epoch seconds.")
	f.Const().Id("TTLAttribute").Op("=").Lit(s.TTL)

	parameters := "Its one parameter is TableName."
	if hasMixed(s) {
		parameters = "Its parameters are TableName, and MixedFleet, which is \"true\" for a table that zae-limiter uses as well: see [TableSettings]."
	}
	f.doc("CloudFormation is the table as a CloudFormation template, time to live included. " + parameters)
	f.Const().Id("CloudFormation").Op("=").Custom(Options{Open: "`", Close: "`"}, Op(cloudFormation(s)))
}

// request writes the call of the AWS SDK that creates the table.
func request(f *file, s *schema.Schema) {
	f.doc("CreateTableInput returns the definition of a table for CreateTable: its key, its indexes, billing on demand and a " +
		"stream of old and new images. The time to live is enabled by a call of its own, for zlimit.TTLAttribute.")
	f.Func().Id("CreateTableInput").Params(Id("table").String()).Op("*").Qual(dynamodbPkg, "CreateTableInput").Block(
		Return(Op("&").Qual(dynamodbPkg, "CreateTableInput").Add(fields(createTable(s)...))),
	)
}

func awsString(s string) *Statement { return Qual(awsPkg, "String").Call(Lit(s)) }

func createTable(s *schema.Schema) []Code {
	var attributes []Code
	for _, name := range s.KeyAttributes() {
		attributes = append(attributes, Values(
			field("AttributeName", awsString(name)),
			field("AttributeType", Qual(typesPkg, "ScalarAttributeTypeS")),
		))
	}
	parts := []Code{
		field("TableName", Qual(awsPkg, "String").Call(Id("table"))),
		field("BillingMode", Qual(typesPkg, "BillingModePayPerRequest")),
		field("AttributeDefinitions", Index().Qual(typesPkg, "AttributeDefinition").Add(fields(attributes...))),
		field("KeySchema", keySchema("PK", "SK")),
	}
	for _, kind := range []struct {
		local       bool
		field, elem string
	}{
		{false, "GlobalSecondaryIndexes", "GlobalSecondaryIndex"},
		{true, "LocalSecondaryIndexes", "LocalSecondaryIndex"},
	} {
		var indexes []Code
		for _, x := range s.Indexes {
			if x.Local != kind.local {
				continue
			}
			projection := "ProjectionTypeAll"
			if x.KeysOnly {
				projection = "ProjectionTypeKeysOnly"
			}
			indexes = append(indexes, fields(
				field("IndexName", awsString(x.Name)),
				field("KeySchema", keySchema(x.PK, x.SK)),
				field("Projection", Op("&").Qual(typesPkg, "Projection").Values(field("ProjectionType", Qual(typesPkg, projection)))),
			))
		}
		if len(indexes) > 0 {
			parts = append(parts, field(kind.field, Index().Qual(typesPkg, kind.elem).Add(fields(indexes...))))
		}
	}
	return append(parts, field("StreamSpecification", Op("&").Qual(typesPkg, "StreamSpecification").Add(fields(
		field("StreamEnabled", Qual(awsPkg, "Bool").Call(True())),
		field("StreamViewType", Qual(typesPkg, "StreamViewTypeNewAndOldImages")),
	))))
}

func keySchema(pk, sk string) *Statement {
	element := func(name, kind string) Code {
		return Values(field("AttributeName", awsString(name)), field("KeyType", Qual(typesPkg, "KeyType"+kind)))
	}
	return Index().Qual(typesPkg, "KeySchemaElement").Add(fields(element(pk, "Hash"), element(sk, "Range")))
}

// hasMixed reports whether an index holds whole items in tables for mixed fleets.
func hasMixed(s *schema.Schema) bool {
	return slices.ContainsFunc(s.Indexes, func(x *schema.Index) bool { return x.Mixed })
}

func cloudFormation(s *schema.Schema) string {
	var b strings.Builder
	b.WriteString("Parameters:\n  TableName:\n    Type: String\n")
	if hasMixed(s) {
		b.WriteString("  MixedFleet:\n    Type: String\n    Default: \"false\"\n    AllowedValues: [\"true\", \"false\"]\n" +
			"Conditions:\n  ForMixedFleet: !Equals [!Ref MixedFleet, \"true\"]\n")
	}
	b.WriteString("Resources:\n  Table:\n    Type: AWS::DynamoDB::Table\n" +
		"    Properties:\n      TableName: !Ref TableName\n      BillingMode: PAY_PER_REQUEST\n")
	tableShape(&b, s, "")
	fmt.Fprintf(&b, "      StreamSpecification: { StreamViewType: NEW_AND_OLD_IMAGES }\n"+
		"      TimeToLiveSpecification: { AttributeName: %s, Enabled: true }\n", s.TTL)
	return b.String()
}

// tableShape writes the key of the table and its indexes as properties of a table in a template. Each global index gets more properties.
func tableShape(b *strings.Builder, s *schema.Schema, more string) {
	b.WriteString("      AttributeDefinitions:\n")
	for _, name := range s.KeyAttributes() {
		fmt.Fprintf(b, "        - { AttributeName: %s, AttributeType: S }\n", name)
	}
	key := func(pk, sk string) string {
		return fmt.Sprintf("KeySchema: [{ AttributeName: %s, KeyType: HASH }, { AttributeName: %s, KeyType: RANGE }]", pk, sk)
	}
	fmt.Fprintf(b, "      %s\n", key("PK", "SK"))
	for _, kind := range []struct {
		local bool
		name  string
	}{{false, "GlobalSecondaryIndexes"}, {true, "LocalSecondaryIndexes"}} {
		if !slices.ContainsFunc(s.Indexes, func(x *schema.Index) bool { return x.Local == kind.local }) {
			continue
		}
		fmt.Fprintf(b, "      %s:\n", kind.name)
		for _, x := range s.Indexes {
			if x.Local != kind.local {
				continue
			}
			projection := "ALL"
			if x.KeysOnly {
				projection = "KEYS_ONLY"
			}
			if x.Mixed {
				projection = "!If [ForMixedFleet, ALL, KEYS_ONLY]"
			}
			fmt.Fprintf(b, "        - IndexName: %s\n          %s\n          Projection: { ProjectionType: %s }\n", x.Name, key(x.PK, x.SK), projection)
			if !x.Local {
				b.WriteString(more)
			}
		}
	}
}
