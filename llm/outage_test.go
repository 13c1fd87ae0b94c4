package llm_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/zlimit"
)

// never are limits that do not refill during a test.
var never = []zlimit.Limit{zlimit.PerDay("rpm", 10), zlimit.PerDay("tpm", 1000)}

// notSettled is logged of a call that is given up.
const notSettled = "a call could not be settled"

// TestSettlesInOutages breaks the store while an answer is read. Its bytes come immediately, also the last event of a stream
// that ends without an empty line. Its end, or Close, comes when the call is settled or given up. There is one report.
func TestSettlesInOutages(t *testing.T) {
	const stream = `data: {"choices":[{"delta":{"content":"eight ch"}}],"usage":null}` + "\n\n" +
		`data: {"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":30}}` + "\n\n" + `data: [DONE]`
	filtered := stream[:strings.Index(stream, "\n\n")+2] + "data: [DONE]"
	for _, b := range faulttest.Outages() {
		for _, end := range []string{"read", "closed", "cancelled", "too late", "filtered", "drained", "drained and filtered"} {
			t.Run(b.Name+", "+end, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					want, opts := stream, []llm.Option(nil)
					if strings.Contains(end, "drained") {
						opts = append(opts, llm.WithDrain(1<<20, time.Minute))
					}
					if strings.Contains(end, "filtered") {
						want, opts = filtered, append(opts, llm.WithIncludeUsage())
					}
					settleInOutage(t, b, end, stream, want, opts)
				})
			})
		}
	}
}

func settleInOutage(t *testing.T, b faulttest.Outage, end, stream, want string, opts []llm.Option) {
	limiter, store := faulttest.New(t, never)
	var log faulttest.Log
	base := respond(200, http.Header{"Content-Type": {"text/event-stream"}}, &faulttest.Body{Rest: stream})
	transport, reports := newTransport(t, limiter, base, append(opts, llm.WithLogger(log.Logger()))...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	response, err := transport.RoundTrip(newRequest(t, chatPath, `{"stream":true,"model":"m","max_tokens":500}`).WithContext(ctx))
	check.Fatal(t, "RoundTrip()", err)
	settling := b.Begin(store)
	got := make([]byte, len(want))
	if n, err := io.ReadFull(response.Body, got); err != nil || string(got) != want {
		t.Errorf("the bytes are %q, %v", got[:n], err)
	}
	if waited := time.Since(settling.Began); waited != 0 {
		t.Errorf("the last bytes are held back for %v", waited)
	}
	switch end {
	case "closed":
		_ = response.Body.Close()
	case "cancelled":
		cancel()
		synctest.Wait()
	case "too late":
		time.Sleep(time.Minute)
		settling.Began = time.Now()
		synctest.Wait()
	}
	if end != "closed" {
		if n, err := response.Body.Read(got); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("Read() at the end = %d, %v", n, err)
		}
	}
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() { _ = response.Body.Close() })
	}
	group.Wait()
	settling.Check(t, &log, notSettled)
	check.Error(t, "Wait()", transport.Wait(t.Context()))
	tokens := b.Left(50, 500)
	if got := left(t, limiter, "m"); got["rpm"] != 9 || got["tpm"] != 1000-tokens {
		t.Errorf("left are %v, want 9 and %d", got, 1000-tokens)
	}
	report := reports.one(t)
	if !maps.Equal(report.Charged, zlimit.Amounts{"rpm": 1, "tpm": tokens}) || (report.Err != nil) != (b.Logged > 0) {
		t.Errorf("Report = %+v, want %d tokens", report, tokens)
	}
}

// TestUnansweredInOutages breaks the store before a request that is not sent, not answered, or whose base panics.
func TestUnansweredInOutages(t *testing.T) {
	failed := errors.New("no route")
	for _, b := range faulttest.Outages() {
		for _, panics := range []bool{false, true} {
			t.Run(b.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					limiter, store := faulttest.New(t, never)
					var log faulttest.Log
					var settling *faulttest.Settling
					transport, reports := newTransport(t, limiter, faulttest.RoundTripper(func(*http.Request) (*http.Response, error) {
						settling = b.Begin(store)
						if panics {
							panic("broken")
						}
						return nil, failed
					}), llm.WithLogger(log.Logger()))
					func() {
						defer func() {
							if got := recover(); (got == "broken") != panics {
								t.Errorf("the panic is %v", got)
							}
						}()
						if _, err := transport.RoundTrip(newRequest(t, chatPath, `{"model":"m","max_tokens":500}`)); !errors.Is(err, failed) {
							t.Errorf("RoundTrip() = %v, want the error of the base", err)
						}
					}()
					settling.Check(t, &log, notSettled)
					tokens := b.Left(0, 500)
					if got := left(t, limiter, "m"); got["tpm"] != 1000-tokens || reports.one(t).Charged["tpm"] != tokens {
						t.Errorf("left are %v, and %v are reported, want %d tokens", got, reports.one(t).Charged, tokens)
					}
				})
			})
		}
	}
}

// TestLearningInOutages breaks the store at an answer that teaches something. The caller does not wait for it; Wait does, for
// as long as its context allows.
func TestLearningInOutages(t *testing.T) {
	for _, b := range faulttest.Outages()[1:] {
		t.Run(b.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter, store := faulttest.New(t, never)
				var log faulttest.Log
				header := http.Header{"X-Ratelimit-Remaining-Tokens": {"100"}}
				base := respond(200, header, &faulttest.Body{Rest: `{"usage":{"prompt_tokens":20,"completion_tokens":30}}`})
				transport, _ := newTransport(t, limiter, base, llm.WithLearning("alice"), llm.WithLogger(log.Logger()))
				response := check.Call(transport.RoundTrip(newRequest(t, chatPath, `{"model":"m","max_tokens":500}`))).Must(t, "RoundTrip()")
				store.Break(b.Fault)
				began := time.Now()
				if _, err := io.Copy(io.Discard, response.Body); err != nil {
					t.Errorf("io.Copy() = %v", err)
				}
				_ = response.Body.Close()
				if waited := time.Since(began); waited != b.Takes {
					t.Errorf("the end is held back for %v, want %v: that of the settling alone", waited, b.Takes)
				}
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				if err := transport.Wait(ended); b.Takes > 0 && !errors.Is(err, context.Canceled) {
					t.Errorf("Wait() while something is learned = %v, want the error of the context", err)
				}
				check.Error(t, "Wait()", transport.Wait(t.Context()))
				if waited := time.Since(began); waited > 12*time.Second {
					t.Errorf("something is learned for %v, want 12 seconds at most", waited)
				}
				if want := map[bool]int{true: 0, false: 1}[b.Name == "slow"]; log.Count("were not learned") != want {
					t.Errorf("the log is %q, want %d lines of what was not learned", &log, want)
				}
			})
		})
	}
}

// TestClosedWhileAnswersAreRead closes the limiter before the calls are settled: each is given up once.
func TestClosedWhileAnswersAreRead(t *testing.T) {
	limiter, store := faulttest.New(t, never)
	var log faulttest.Log
	transport, reports := newTransport(t, limiter, faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
		return respond(200, http.Header{}, &faulttest.Body{Rest: `{"usage":{"prompt_tokens":20,"completion_tokens":30}}`})(r)
	}), llm.WithLogger(log.Logger()))
	response := check.Call(transport.RoundTrip(newRequest(t, chatPath, `{"model":"m","max_tokens":500}`))).Must(t, "RoundTrip()")
	check.Fatal(t, "Close()", limiter.Close())
	before := store.Writes()
	if got, err := io.ReadAll(response.Body); !strings.Contains(string(got), "usage") || err != nil {
		t.Errorf("the answer is %q, %v", got, err)
	}
	_ = response.Body.Close()
	report := reports.one(t)
	if !errors.Is(report.Err, zlimit.ErrClosed) || store.Writes() != before || log.Count(notSettled) != 1 {
		t.Errorf("the report is %+v, the log %q, want one line of a limiter that is closed", report, &log)
	}
}
