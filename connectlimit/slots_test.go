package connectlimit_test

import (
	"context"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/zlimit/zlimit-go/connectlimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// TestSlotsOfACall holds a slot over a whole call of each kind, at the handler and in the client, and a stream to its end. It is given back
// once, however the call ends.
func TestSlotsOfACall(t *testing.T) {
	for _, inClient := range []bool{false, true} {
		limiter, _ := zlimittest.New(t, zlimit.Slots("calls", 2), zlimit.PerMinute("rpm", 100))
		of := func(context.Context, connect.Spec, http.Header) (zlimit.Request, error) {
			return zlimit.Request{Entity: "alice", Resource: "api", Consume: zlimit.Amounts{"calls": 1, "rpm": 1}}, nil
		}
		limiting, inside := connect.WithInterceptors(connectlimit.New(limiter, of)), false
		handle := func(ctx context.Context, text string) error {
			inside = true
			faulttest.CheckSlots(t, limiter, 1, limiter.Stats().SlotsTaken)
			return echo(ctx, text)
		}
		var s *service
		if inClient {
			s = newService(t, handle, []connect.HandlerOption{recovered}, limiting)
		} else {
			s = newService(t, handle, []connect.HandlerOption{recovered, limiting})
		}
		taken := uint64(0)
		for kind, call := range kinds {
			for _, text := range []string{"hello", "fail", "panic"} {
				_, _ = call(context.Background(), s, text)
				taken++
				faulttest.CheckSlots(t, limiter, 0, taken)
				if t.Failed() {
					t.Fatalf("%s, %s, in the client %t", kind, text, inClient)
				}
			}
		}
		for end, leave := range map[string]func(cancel func(), stream *connect.BidiStreamForClient[text, text]){
			"closed": func(_ func(), stream *connect.BidiStreamForClient[text, text]) {
				_ = stream.CloseRequest()
				_, _ = stream.Receive()
			},
			"cancelled": func(cancel func(), _ *connect.BidiStreamForClient[text, text]) { cancel() },
		} {
			ctx, cancel := context.WithCancel(t.Context())
			stream := s.bidi.CallBidiStream(ctx)
			taken++
			for range 3 {
				check.Fatal(t, "Send()", stream.Send(wrapperspb.String("hello")))
				if _, err := stream.Receive(); err != nil {
					t.Fatalf("Receive() = %v", err)
				}
				faulttest.CheckSlots(t, limiter, 1, taken)
			}
			leave(cancel, stream)
			if !inClient { // a server hears of it only then: HTTP/2 looks at the context no more while it waits for messages
				_ = stream.CloseResponse()
			}
			faulttest.CheckSlots(t, limiter, 0, taken)
			cancel()
			_ = stream.CloseResponse()
			if t.Failed() {
				t.Fatalf("a stream that is %s, in the client %t", end, inClient)
			}
		}
		if !inside {
			t.Error("no call reached the handler")
		}
	}
}
