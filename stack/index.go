package stack

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// Where the template has the global indexes of the table, and the attributes of their keys.
const (
	globalIndexes = "   GlobalSecondaryIndexes:\n"
	oneIndex      = "    - IndexName: "
	oneAttribute  = "    - {AttributeName: "
	oneKey        = "{AttributeName: "
)

type index struct {
	name, text string
	keys       []string // attributes
}

func indexesOf(template string) (all []index) {
	_, after, _ := strings.Cut(template, globalIndexes)
	for line := range strings.Lines(after) {
		name, begins := strings.CutPrefix(line, oneIndex)
		switch {
		case begins:
			all = append(all, index{name: strings.TrimSpace(name)})
		case len(all) == 0 || !strings.HasPrefix(line, "     "):
			return all
		}
		x := &all[len(all)-1]
		x.text += line
		for _, key := range strings.Split(line, oneKey)[1:] {
			key, _, _ = strings.Cut(key, ",")
			x.keys = append(x.keys, key)
		}
	}
	return all
}

// staged returns a template that adds at most one index to a table, since DynamoDB takes no more in an update. It also
// returns the names of the indexes that it leaves to further steps.
func staged(template string, has []string) (text string, later []string) {
	added := false
	for _, x := range indexesOf(template) {
		switch {
		case slices.Contains(has, x.name):
		case !added:
			added = true
		default:
			later = append(later, x.name)
			template = strings.Replace(template, x.text, "", 1)
			for _, key := range x.keys {
				template = strings.Replace(template, oneAttribute+key+", AttributeType: S}\n", "", 1)
			}
		}
	}
	return template, later
}

// stage returns the template for the next step of a deployment of a whole one to a stack that has a table.
func (a *account) stage(ctx context.Context, table, whole string) (template string, later []string, err error) {
	out, err := call(ctx, a, a.clients.DynamoDB.DescribeTable, &dynamodb.DescribeTableInput{TableName: &table})
	switch {
	case hasCode(err, "ResourceNotFoundException"):
		return whole, nil, nil
	case err != nil:
		return "", nil, fmt.Errorf("stack: look at the indexes of table %s: %w", table, err)
	}
	var has []string
	for i := range out.Table.GlobalSecondaryIndexes {
		has = append(has, value(out.Table.GlobalSecondaryIndexes[i].IndexName))
	}
	template, later = staged(whole, has)
	return template, later, nil
}
