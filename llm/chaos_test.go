package llm_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

var chaosStreams = flag.Int("chaos.streams", 400, "answers of TestChaos; make soak makes 10,000 with the race detector")

// A format of TestChaos is a call and its answer. Events are pieces that must be whole, such as those of a stream.
type chaosFormat struct {
	path, contentType string
	events            []string
	join              func(events []string) []byte
}

// chaosFormats are all ways in which answers come: as one document, as lines, and as events of two kinds. MODEL stands for the name of the
// model.
func chaosFormats(t *testing.T) []chaosFormat {
	const sse, json, messages = "text/event-stream; charset=utf-8", "application/json", "application/vnd.amazon.eventstream"
	plain := func(events []string) []byte { return []byte(strings.Join(events, "")) }
	framed := func(lines []string) []byte { return events(t, []byte(strings.Join(lines, ""))) }
	split := func(name, after string) []string { return strings.SplitAfter(string(read(t, name)), after) }
	converse := strings.SplitAfter(string(read(t, "bedrock.events")), "\n")
	const (
		chatPiece = `data: {"choices":[{"delta":{"reasoning":"hm, "}}],"usage":null}` + "\r\n\r\n"
		last      = `data: {"choices":[],"x_groq":{"usage":{"prompt_tokens":40,"completion_tokens":9}}}` + "\r\n\r\n"
	)
	return []chaosFormat{
		{chatPath, sse, split("chat.sse", "\n\n"), plain},
		{chatPath, sse, []string{chatPiece, chatPiece, last}, plain},
		{chatPath, json, split("chat.json", "\n"), plain},
		{"/v1/responses", sse, split("responses.sse", "\n\n"), plain},
		{"/v1/responses", json, split("responses.json", "\n"), plain},
		{"/v1/messages", sse, split("anthropic.sse", "\n\n"), plain},
		{"/v1/messages", json, split("anthropic.json", "\n"), plain},
		{"/v1beta/models/MODEL:streamGenerateContent", sse, split("gemini.sse", "\n\n"), plain},
		{"/v1beta/models/MODEL:streamGenerateContent", json, split("gemini.json", "\n,\n"), plain},
		{"/model/MODEL/converse-stream", messages, converse, framed},
		{"/model/MODEL/converse", json, split("bedrock.json", "\n"), plain},
		{"/model/MODEL/invoke-with-response-stream", messages, []string{
			`chunk {"bytes":"eyJ0eXBlIjoibWVzc2FnZV9zdGFydCIsIm1lc3NhZ2UiOnsidXNhZ2UiOnsiaW5wdXRfdG9rZW5zIjo0NzJ9fX0="}` + "\n",
			`chunk {"bytes":"eyJ0eXBlIjoibWVzc2FnZV9kZWx0YSIsImRlbHRhIjp7InN0b3BfcmVhc29uIjoiZW5kX3R1cm4ifSwidXNhZ2UiOnsib3V0cHV0X3Rva2VucyI6ODl9fQ=="}` + "\n",
		}, framed},
		{"/model/MODEL/invoke", json, []string{`{"generation":"Blue.","prompt_token_count":12,"generation_token_count":3}`}, plain},
		{"/v1/completions", sse, []string{`data: {"choices":[{"text":"Blue."}]}` + "\n\n", `data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}` + "\n\n"}, plain},
		{"/v1beta/interactions", sse, []string{`data: {"delta":{"text":"Blue."}}` + "\n\n", `data: {"interaction":{"usage":{"total_input_tokens":9,"total_output_tokens":4}}}` + "\n\n"}, plain},
		{"/api/chat", "application/x-ndjson", []string{`{"message":{"content":"Blue."}}` + "\n", `{"done":true,"done_reason":"stop","prompt_eval_count":9,"eval_count":3}` + "\n"}, plain},
		{"/v1/embeddings", json, []string{`{"data":[{"embedding":[0.1]}],"usage":{"prompt_tokens":8}}`}, plain},
	}
}

// A chaos is what becomes of one answer. All of it is drawn from its number.
type chaos struct {
	id        int
	format    chaosFormat
	body      []byte // as it is sent, up to where it is cut
	plain     []byte // as it is before it is compressed, if it is
	cut       bool
	gzip      bool
	abort     bool // the connection breaks at the end
	hang      bool // the server says nothing more at the end
	slow      time.Duration
	piece     int
	status    int
	transport int // of chaosTransports
	act       chaosAct
	read      int // bytes that the caller reads before it acts
	buffer    int // of the caller
}

// A chaosAct is what the caller does after the bytes that it reads.
type chaosAct int

const (
	readOn chaosAct = iota // to the end
	closeTwice
	cancelAndClose
	cancelOnly // and forget the answer
	allAtOnce
	chaosActs
)

func newChaos(id int, formats []chaosFormat) chaos {
	source := rand.New(rand.NewPCG(uint64(id), 27))
	c := chaos{
		id: id, format: formats[source.IntN(len(formats))], gzip: source.IntN(4) == 0, status: http.StatusOK, piece: 1 + source.IntN(1<<source.IntN(10)),
		transport: source.IntN(4), act: chaosAct(source.IntN(int(chaosActs))), buffer: []int{1, 7, 32 << 10}[source.IntN(3)],
	}
	pieces := append([]string{}, c.format.events...)
	at := source.IntN(len(pieces))
	switch source.IntN(5) {
	case 0: // no usage
		for i, piece := range pieces {
			for _, name := range []string{"usage", "eval_count", "token_count"} {
				pieces[i] = strings.ReplaceAll(pieces[i], name, "x"+name)
			}
			if strings.HasPrefix(piece, "chunk ") {
				pieces[i] = `chunk {"bytes":"e30="}` + "\n"
			}
		}
	case 1: // all of it twice
		pieces = append(pieces, pieces...)
	case 2: // an error in the middle, and perhaps more behind it
		failure := `{"error":{"type":"overloaded_error","message":"no"}}` + "\n"
		switch {
		case strings.HasPrefix(c.format.contentType, "text/"):
			failure = "event: error\ndata: " + failure + "\n"
		case strings.HasPrefix(c.format.contentType, "application/vnd"):
			failure = "throttlingException " + failure
		}
		pieces = append(append(append([]string{}, pieces[:at]...), failure), pieces[at+source.IntN(len(pieces)-at):]...)
	}
	c.plain = c.format.join(pieces)
	c.body = c.plain
	if c.gzip {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(c.plain)
		_ = z.Close()
		c.body = b.Bytes()
	}
	if c.cut = source.IntN(2) == 0; c.cut {
		c.body = c.body[:source.IntN(len(c.body)+1)]
		c.abort, c.hang = source.IntN(3) == 0, source.IntN(20) == 0
	}
	if source.IntN(10) == 0 {
		c.status = []int{429, 500, 529}[source.IntN(3)]
	}
	if source.IntN(4) == 0 {
		c.slow = time.Duration(source.IntN(500)) * time.Microsecond
	}
	if c.act != readOn {
		c.read = source.IntN(len(c.body) + 1)
	}
	if c.act == readOn || c.format.path == chatPath && c.transport&1 > 0 { // which would wait for what does not come: the end, or the rest of an event
		c.hang = false
	}
	return c
}

// serve sends the answer as it is drawn.
func (c *chaos) serve(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", c.format.contentType)
	if c.gzip {
		w.Header().Set("Content-Encoding", "gzip")
	}
	w.WriteHeader(c.status)
	_ = http.NewResponseController(w).Flush()
	for rest := c.body; len(rest) > 0; {
		n := min(c.piece, len(rest))
		if _, err := w.Write(rest[:n]); err != nil {
			return
		}
		rest = rest[n:]
		_ = http.NewResponseController(w).Flush()
		time.Sleep(c.slow)
	}
	if c.hang {
		<-r.Context().Done()
	}
	if c.abort {
		panic(http.ErrAbortHandler)
	}
}

// call makes the call, and returns what its caller has read, and whether that came to an end.
func (c *chaos) call(ctx context.Context, client http.RoundTripper, url string) (got []byte, whole bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	model := "m" + strconv.Itoa(c.id)
	body := fmt.Sprintf(`{"model":%q,"stream":true,"max_tokens":50}`, model)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+strings.ReplaceAll(c.format.path, "MODEL", model), strings.NewReader(body))
	if err != nil {
		return nil, false, err
	}
	r.Header.Set("Chaos", strconv.Itoa(c.id))
	if c.gzip {
		r.Header.Set("Accept-Encoding", "gzip")
	}
	response, err := client.RoundTrip(r)
	if err != nil {
		return nil, false, err
	}
	read := func(most int) {
		for buffer := make([]byte, c.buffer); len(got) < most && err == nil; {
			var n int
			n, err = response.Body.Read(buffer[:min(len(buffer), most-len(got))])
			got = append(got, buffer[:n]...)
		}
	}
	switch c.act {
	case readOn:
		read(1 << 30)
		whole = errors.Is(err, io.EOF)
		_ = response.Body.Close()
	case closeTwice:
		read(c.read)
		_, _ = response.Body.Close(), response.Body.Close()
	case cancelAndClose:
		read(c.read)
		cancel()
		_ = response.Body.Close()
	case cancelOnly:
		read(c.read)
	default:
		var ends sync.WaitGroup
		ends.Go(func() { read(c.read) })
		ends.Go(cancel)
		ends.Go(func() { _ = response.Body.Close() })
		ends.Go(func() { _ = response.Body.Close() })
		ends.Wait()
	}
	return got, whole, nil
}

// In TestChaos, a server answers in all formats: cut at any byte, compressed, slow, with errors, without usage or with it twice. Callers
// read by single bytes, leave, cancel and close, also concurrently. Each call is settled once, the bucket has what the reports say, and a
// caller reads the bytes of the server. The usage is that of a meter that reads the same bytes in one piece.
func TestChaos(t *testing.T) {
	streams := *chaosStreams
	if testing.Short() {
		streams = min(streams, 200)
	}
	formats := chaosFormats(t)
	draws := make([]chaos, streams)
	for i := range draws {
		draws[i] = newChaos(i, formats)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, _ := strconv.Atoi(r.Header.Get("Chaos"))
		draws[id].serve(w, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	defer server.Close()
	base := &http.Transport{MaxIdleConnsPerHost: 32}
	defer base.CloseIdleConnections()

	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 1_000_000_000), zlimit.PerMinute("tpm", 1_000_000_000_000))
	for _, e := range []zlimit.Entity{{ID: "org"}, {ID: "alice", ParentID: "org", Cascade: true}} {
		if _, err := limiter.Entities.Ensure(t.Context(), e); err != nil {
			t.Fatalf("Entities.Ensure() = %v", err)
		}
	}
	var mu sync.Mutex
	settled, charged := map[string][]llm.Report{}, zlimit.Amounts{}
	observe := llm.WithObserver(func(_ context.Context, r llm.Report) {
		mu.Lock()
		defer mu.Unlock()
		settled[r.Call.Model] = append(settled[r.Call.Model], r)
		for limit, n := range r.Charged {
			charged[limit] += n
		}
	})
	var transports []*llm.Transport
	for i := range 4 {
		opts := []llm.Option{observe, llm.WithModels(llm.Rule{Pattern: "*", Resource: "models"})}
		if i&1 > 0 {
			opts = append(opts, llm.WithIncludeUsage())
		}
		if i&2 > 0 {
			opts = append(opts, llm.WithDrain(1<<20, 20*time.Millisecond))
		}
		transport, _ := newTransport(t, limiter, base, opts...)
		transports = append(transports, transport)
	}

	started := time.Now()
	results := make([][]byte, streams)
	wholes := make([]bool, streams)
	next := make(chan int)
	var callers sync.WaitGroup
	for range 24 {
		callers.Go(func() {
			for i := range next {
				var err error
				if results[i], wholes[i], err = draws[i].call(t.Context(), transports[draws[i].transport], server.URL); err != nil {
					t.Errorf("%s: %v", draws[i].name(), err)
				}
			}
		})
	}
	for i := range draws {
		next <- i
	}
	close(next)
	callers.Wait()
	for range 1000 { // the ends of contexts may still be on their way
		for _, transport := range transports {
			check.Error(t, "Wait()", transport.Wait(t.Context()))
		}
		mu.Lock()
		n := len(settled)
		mu.Unlock()
		if n == streams {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("%d streams in %v", streams, time.Since(started).Round(time.Millisecond))

	mu.Lock()
	defer mu.Unlock()
	for i := range draws {
		draws[i].check(t, results[i], wholes[i], settled["m"+strconv.Itoa(i)])
	}
	for _, entity := range []string{"alice", "org"} {
		for b, err := range limiter.Entities.Buckets(t.Context(), entity) {
			check.Fatal(t, "Entities.Buckets()", err)
			for _, limit := range []string{"rpm", "tpm"} {
				if got := b.Consumed[limit].Tokens(); got != charged[limit] {
					t.Errorf("%s has consumed %d of %s, and the reports say %d", entity, got, limit, charged[limit])
				}
			}
		}
	}
	if charged["rpm"] != int64(streams) {
		t.Errorf("%d requests are charged for %d streams", charged["rpm"], streams)
	}
}

// check checks what one caller has read, and its reports.
func (c *chaos) check(t *testing.T, got []byte, whole bool, reports []llm.Report) {
	t.Helper()
	if len(reports) != 1 {
		t.Errorf("%s: %d settlements", c.name(), len(reports))
		return
	}
	report := reports[0]
	if report.Err != nil || report.Status != c.status {
		t.Errorf("%s: the report is %+v", c.name(), report)
	}
	filtered := c.transport&1 > 0 && c.format.path == chatPath && strings.HasPrefix(c.format.contentType, "text/")
	unpacked := c.gzip && c.transport&1 > 0 && c.format.path == chatPath // by the base, since the transport asks for no encoding
	sent, header := c.body, http.Header{"Content-Type": {c.format.contentType}}
	switch {
	case unpacked:
		sent = c.plain
	case c.gzip:
		header.Set("Content-Encoding", "gzip")
	}
	want := sent
	if filtered {
		var kept []string
		end := "\n\n"
		if bytes.Contains(sent, []byte("\r\n\r\n")) {
			end = "\r\n\r\n"
		}
		for _, event := range strings.SplitAfter(string(sent), end) {
			if !strings.HasSuffix(event, end) || !strings.Contains(event, `"choices":[],"usage":{`) {
				kept = append(kept, event)
			}
		}
		want = []byte(strings.Join(kept, ""))
	}
	begins := bytes.HasPrefix(want, got) || unpacked && c.cut && bytes.HasPrefix(sent, got)
	if !begins || whole && !unpacked && len(got) != len(want) { // what is unpacked may end within the usage
		t.Errorf("%s: the caller reads\n%q of\n%q", c.name(), got, want)
	}
	if filtered || unpacked || c.status != http.StatusOK {
		if c.status != http.StatusOK && report.Charged["tpm"] != 0 {
			t.Errorf("%s: an error is charged %v", c.name(), report.Charged)
		}
		return
	}
	metered := sent
	switch {
	case c.act == readOn:
	case c.act != allAtOnce && c.transport&2 == 0 && len(got) < len(sent): // otherwise the end may have come with the last bytes
		metered = got
	default: // how much was metered is a matter of time
		return
	}
	body := io.Reader(bytes.NewReader(metered))
	if c.act != readOn || c.abort {
		body = io.MultiReader(body, brokenReader{})
	}
	meter := llm.NewMeter(report.Call, header, io.NopCloser(body))
	_, _ = io.Copy(io.Discard, meter)
	_ = meter.Close()
	if usage := meter.Usage(); report.Usage != usage {
		t.Errorf("%s: the usage is %+v, by a meter alone %+v", c.name(), report.Usage, usage)
	}
	if total := report.Usage.Total(); report.Charged["tpm"] != total || report.Charged["rpm"] != 1 {
		t.Errorf("%s: charged are %v, of %d tokens", c.name(), report.Charged, total)
	}
}

func (c *chaos) name() string {
	return fmt.Sprintf("stream %d (%s as %s, cut %t, gzip %t, abort %t, hang %t, status %d, transport %d, act %d, read %d)",
		c.id, c.format.path, c.format.contentType, c.cut, c.gzip, c.abort, c.hang, c.status, c.transport, c.act, c.read)
}
