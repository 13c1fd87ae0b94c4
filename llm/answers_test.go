package llm_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// A recorded call is a file of testdata/answers, as docs/answers.md describes it.
type recorded struct {
	name   string
	method string
	path   string
	asked  http.Header
	body   string

	status int
	broken bool // the connection breaks behind the answer
	header http.Header
	answer []byte

	want charge
}

// A charge is what a recorded call should take.
type charge struct {
	llm.Usage
	// Estimate is what the call takes before it is sent, in tokens; nil for what does not matter.
	Estimate *int64 `json:"estimate"`
	// Models are those that the request names; nil for the one of the answer or the path.
	Models []string `json:"models"`
	// Refused is the field for which the call is not sent.
	Refused string `json:"refused"`
}

// recordings returns the files of testdata/answers.
func recordings(t testing.TB) (all []recorded) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", "answers", "*.txt"))
	if err != nil || len(names) < 150 {
		t.Fatalf("%d recorded calls, %v, want at least 150", len(names), err)
	}
	for _, name := range names {
		all = append(all, recording(t, name))
	}
	return all
}

// recording reads a file.
func recording(t testing.TB, file string) recorded {
	t.Helper()
	text, err := os.ReadFile(file)
	check.Fatal(t, "os.ReadFile()", err)
	reason, rest, ok1 := strings.Cut(string(text), "-- request --\n")
	request, rest, ok2 := strings.Cut(rest, "-- answer --\n")
	answer, want, ok3 := strings.Cut(rest, "-- charge --\n")
	if !ok1 || !ok2 || !ok3 || strings.TrimSpace(reason) == "" {
		t.Fatalf("%s: must have a reason, a request, an answer and a charge", file)
	}
	r := recorded{name: strings.TrimSuffix(filepath.Base(file), ".txt")}
	first, body, header := message(request)
	r.method, r.path, _ = strings.Cut(first, " ")
	r.asked, r.body = header, strings.TrimSuffix(body, "\n")
	first, body, r.header = message(answer)
	status, how, _ := strings.Cut(first, " ")
	if r.status, err = strconv.Atoi(status); err != nil || how != "" && how != "broken" {
		t.Fatalf("%s: %q is no status", file, first)
	}
	r.broken, r.answer = how == "broken", []byte(body)
	if r.header.Get("Content-Type") == "application/vnd.amazon.eventstream" {
		r.answer = amazon(t, body)
	}
	decoder := json.NewDecoder(strings.NewReader(want))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r.want); err != nil {
		t.Fatalf("%s: the charge: %v", file, err)
	}
	return r
}

// message takes apart a request or an answer: its first line, its header, and its body behind an empty line.
func message(text string) (first, body string, header http.Header) {
	head, body, _ := strings.Cut(text, "\n\n")
	header = http.Header{}
	for i, line := range strings.Split(head, "\n") {
		if i == 0 {
			first = line
			continue
		}
		name, value, _ := strings.Cut(line, ": ")
		header.Add(name, value)
	}
	return first, body, header
}

// amazon encodes lines of a type and a payload as an event stream. The payload of a chunk comes in base64, and a type behind an
// exclamation mark is that of an exception.
func amazon(t testing.TB, lines string) []byte {
	t.Helper()
	var b bytes.Buffer
	for line := range strings.Lines(lines) {
		kind, payload, _ := strings.Cut(strings.TrimSpace(line), " ")
		if kind == "" {
			continue
		}
		if kind == "chunk" {
			payload = `{"bytes":"` + base64.StdEncoding.EncodeToString([]byte(payload)) + `"}`
		}
		m := eventstream.Message{Payload: []byte(payload)}
		if name, exception := strings.CutPrefix(kind, "!"); exception {
			m.Headers.Set(":message-type", eventstream.StringValue("exception"))
			m.Headers.Set(":exception-type", eventstream.StringValue(name))
		} else {
			m.Headers.Set(":message-type", eventstream.StringValue("event"))
			m.Headers.Set(":event-type", eventstream.StringValue(kind))
		}
		check.Fatal(t, "Encode()", eventstream.NewEncoder().Encode(&b, m))
	}
	return b.Bytes()
}

func (r *recorded) request(t testing.TB) *http.Request {
	q := newRequest(t, r.path, r.body)
	q.Method = r.method
	for name, values := range r.asked {
		q.Header[name] = values
	}
	return q
}

// in returns the answer in pieces.
func (r *recorded) in(lengths func(left int) int) *pieces {
	p := &pieces{rest: r.answer, lengths: lengths}
	if r.broken {
		p.err = io.ErrUnexpectedEOF
	}
	return p
}

// TestAnswers holds every recorded call against its charge: read by a meter, and sent by a transport, whole and in pieces of
// many sizes.
func TestAnswers(t *testing.T) {
	for _, r := range recordings(t) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			call, err := llm.Inspect(r.request(t))
			if r.want.Refused != "" {
				var invalid *zlimit.ValidationError
				if !errors.As(err, &invalid) || invalid.Field != r.want.Refused {
					t.Errorf("Inspect() = %+v, %v, want it refused for %s", call, err, r.want.Refused)
				}
				return
			}
			check.Fatal(t, "RoundTrip()", err)
			if r.want.Models != nil && fmt.Sprint(call.Models) != fmt.Sprint(r.want.Models) {
				t.Errorf("Inspect() = %+v, want the models %q", call, r.want.Models)
			}
			if r.want.Estimate != nil && call.Input+call.Output != *r.want.Estimate {
				t.Errorf("Inspect() = %+v, want an estimate of %d tokens", call, *r.want.Estimate)
			}
			if r.status == 200 {
				r.meter(t, call)
			}
			for _, size := range []int{len(r.answer) + 1, 1, 5, 100} {
				r.transport(t, call, size)
			}
		})
	}
}

// meter reads the answer in pieces of every small size, cut in two at random places, and whole.
func (r *recorded) meter(t *testing.T, call llm.Call) {
	sizes := []int{len(r.answer) + 1}
	for size := 1; size <= 40; size++ {
		sizes = append(sizes, size)
	}
	if testing.Short() {
		sizes = []int{len(r.answer) + 1, 1, 2, 3, 7, 31}
	}
	read := func(how string, lengths func(int) int) {
		body := r.in(lengths)
		m := llm.NewMeter(call, r.header, body)
		got, err := io.ReadAll(m)
		if err != nil && !r.broken || !bytes.Equal(got, r.answer) {
			t.Fatalf("%s: the answer is changed, or %v", how, err)
		}
		check.Fatal(t, "Close()", m.Close())
		if got := m.Usage(); got != r.want.Usage {
			t.Fatalf("%s: Usage() =\n%+v, want\n%+v", how, got, r.want.Usage)
		}
	}
	for _, size := range sizes {
		read(fmt.Sprintf("in pieces of %d bytes", size), func(int) int { return size })
	}
	source := rand.New(rand.NewPCG(uint64(len(r.answer)), 1))
	for range 20 {
		cut, first := source.IntN(len(r.answer)+1), true
		read(fmt.Sprintf("cut behind %d bytes", cut), func(left int) int {
			if first {
				first = false
				return cut
			}
			return left
		})
	}
}

// transport sends the request, and looks at what is charged.
func (r *recorded) transport(t *testing.T, call llm.Call, size int) {
	limiter, _ := zlimittest.New(t, zlimit.PerDay("rpm", 10), zlimit.PerDay("tpm", 1_000_000_000))
	transport, reports := newTransport(t, limiter, respond(r.status, r.header, r.in(func(int) int { return size })))
	response := check.Call(transport.RoundTrip(r.request(t))).Must(t, "RoundTrip()")
	if got, _ := io.ReadAll(response.Body); !bytes.Equal(got, r.answer) {
		t.Errorf("the answer is changed:\n%q", got)
	}
	check.Fatal(t, "Body.Close()", response.Body.Close())
	got := reports.one(t)
	if _, rest, ok := strings.Cut(r.path, "/locations/"); ok && got.Usage.Region == rest[:strings.IndexByte(rest, '/')] {
		got.Usage.Region = "" // of the path, and not of the answer
	}
	if got.Usage != r.want.Usage || got.Charged["tpm"] != r.want.Total() || got.Charged["rpm"] != 1 || got.Err != nil {
		t.Errorf("Report = %+v, want the usage\n%+v", got, r.want.Usage)
	}
	for _, model := range call.Models {
		for limit, n := range left(t, limiter, model) {
			got.Charged[limit] -= map[string]int64{"rpm": 10, "tpm": 1_000_000_000}[limit] - n
		}
	}
	if got.Charged["rpm"] != 0 || got.Charged["tpm"] != 0 {
		t.Errorf("%v of the charge is not taken of the limits", got.Charged)
	}
}
