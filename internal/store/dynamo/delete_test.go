package dynamo_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"

	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/store"
)

// TestUnprocessedDeletions leaves deletions of a batch undone, as DynamoDB does when it is short of capacity.
func TestUnprocessedDeletions(t *testing.T) {
	answer := func(left ...string) reply {
		var requests []string
		for _, sk := range left {
			requests = append(requests, fmt.Sprintf(`{"DeleteRequest":{"Key":{"PK":{"S":"p"},"SK":{"S":"%s"}}}}`, sk))
		}
		unprocessed := ""
		if len(left) > 0 {
			unprocessed = fmt.Sprintf(`"table":[%s]`, strings.Join(requests, ","))
		}
		return reply{status: 200, body: fmt.Sprintf(`{"UnprocessedItems":{%s}}`, unprocessed)}
	}
	keys := []store.Key{{PK: "p", SK: "a"}, {PK: "p", SK: "b"}, {PK: "p", SK: "c"}, {PK: "p", SK: "a"}, {PK: "p", SK: "d"}}

	s, sent := scripted(answer("a", "b", "d"), answer("a", "d"), answer("a", "d"), answer("d"), answer())
	check.Error(t, "Delete", s.Delete(t.Context(), keys))
	for i, want := range []int{4, 3, 2, 2, 1} {
		if i >= len(sent.requests) || strings.Count(sent.requests[i], `"DeleteRequest"`) != want {
			t.Fatalf("request %d of %q, want one of %d deletions", i, sent.requests, want)
		}
	}
	if len(sent.requests) != 5 {
		t.Errorf("%d requests, want 5", len(sent.requests))
	}

	s, sent = scripted(answer("a", "d"))
	expectVerdict(t, "deletions that stay unprocessed", s.Delete(t.Context(), keys), unavailable)
	if len(sent.requests) != 4 {
		t.Errorf("%d requests, want 4: the first got somewhere, three more did not", len(sent.requests))
	}
}

// TestFaultyDeletions repeats deletions whose outcome is unknown, and never says that it is.
func TestFaultyDeletions(t *testing.T) {
	for _, test := range []struct {
		kind  enginetest.Kind
		times int
		calls int
		want  verdict
	}{
		{enginetest.Throttled, 2, 3, success},
		{enginetest.LostReply, 2, 3, success},
		{enginetest.LostRequest, 1, 2, success},
		{enginetest.InternalError, 2, 3, success},
		{enginetest.Throttled, 0, 3, unavailable},
		{enginetest.LostReply, 0, 3, unavailable},
		{enginetest.AccessDenied, 0, 1, refusal},
	} {
		s, faults := faulty(t)
		faults.Reset()
		faults.Inject(enginetest.Fault{Kind: test.kind, Operation: "BatchWriteItem", Times: test.times})
		name := fmt.Sprintf("%s, %d times", test.kind, test.times)
		expectVerdict(t, name, s.Delete(t.Context(), []store.Key{one}), test.want)
		if got := faults.Calls("BatchWriteItem"); got != test.calls {
			t.Errorf("%s: %d calls, want %d", name, got, test.calls)
		}
	}
}
