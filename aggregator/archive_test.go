package aggregator

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/store"
)

// expiry is the expiry of an audit event that happened at a time.
func expiry(n int, id, timestamp string) store.Change {
	key := store.Key{PK: "n/AUDIT#e", SK: "#AUDIT#" + id}
	return store.Change{Key: key, Sequence: sequence(n), At: noon, Expired: true, Old: key.Join(expr.Item{
		{Name: "entity_id", Value: expr.S("e")},
		{Name: "event_id", Value: expr.S(id)},
		{Name: "timestamp", Value: expr.S(timestamp)},
		{Name: "action", Value: expr.S("limits_set")},
		{Name: "principal", Value: expr.Null()},
		{Name: "details", Value: expr.Map(expr.Item{
			{Name: "limits", Value: expr.List(expr.Map(expr.Item{{Name: "capacity", Value: expr.N(1 << 60)}}))},
			{Name: "text", Value: expr.S("a<b>&\n\"c\"")},
		})},
		{Name: "ttl", Value: expr.N(1)},
		{Name: "GSI4PK", Value: expr.S("n")},
		{Name: "GSI4SK", Value: expr.S("n/AUDIT#e")},
	})}
}

// line is the JSON of such an event.
func line(id, timestamp string) string {
	return `{"action":"limits_set","details":{"limits":[{"capacity":1152921504606846976}],"text":"a<b>&\n\"c\""},` +
		`"entity_id":"e","event_id":"` + id + `","namespace_id":"n","principal":null,"timestamp":"` + timestamp + `"}`
}

// forEachSink runs a test on every kind of sink. objects returns what it holds, by name.
func forEachSink(t *testing.T, test func(t *testing.T, s Sink, objects func() map[string][]byte)) {
	t.Run("directory", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "archive")
		test(t, Directory(dir), func() map[string][]byte {
			found := map[string][]byte{}
			err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				name, err := filepath.Rel(dir, path)
				if err == nil {
					found[filepath.ToSlash(name)], err = os.ReadFile(path)
				}
				return err
			})
			check.Fatal(t, "filepath.WalkDir()", err)
			return found
		})
	})
	t.Run("s3", func(t *testing.T) {
		client := &bucketRecorder{t: t, objects: map[string][]byte{}}
		test(t, S3(client, "archive", "some/prefix"), func() map[string][]byte {
			found := map[string][]byte{}
			for key, content := range client.objects {
				name, ok := strings.CutPrefix(key, "some/prefix/")
				if !ok {
					t.Errorf("object %s is not under the prefix", key)
				}
				found[name] = content
			}
			return found
		})
	})
}

// A bucketRecorder is a client of S3 that keeps the objects of the bucket "archive".
type bucketRecorder struct {
	t       *testing.T
	mu      sync.Mutex
	objects map[string][]byte
}

func (r *bucketRecorder) PutObject(_ context.Context, in *s3.PutObjectInput, _ ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	content, err := io.ReadAll(in.Body)
	if err != nil {
		return nil, err
	}
	if _, ok := in.Body.(io.Seeker); !ok {
		r.t.Errorf("the body of %s cannot be sent again", aws.ToString(in.Key))
	}
	if bucket, kind := aws.ToString(in.Bucket), aws.ToString(in.ContentType); bucket != "archive" || kind != "application/gzip" {
		r.t.Errorf("%s goes to bucket %q as %q, want archive and application/gzip", aws.ToString(in.Key), bucket, kind)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objects[aws.ToString(in.Key)] = content
	return &s3.PutObjectOutput{}, nil
}

// linesOf returns the lines of an object.
func linesOf(t *testing.T, content []byte) []string {
	t.Helper()
	unzipped := check.Call(gzip.NewReader(bytes.NewReader(content))).Must(t, "gzip.NewReader()")
	var lines []string
	scanner := bufio.NewScanner(unzipped)
	for scanner.Scan() {
		lines = append(lines, scanner.Text())
	}
	check.Fatal(t, "Err()", scanner.Err())
	return lines
}

func TestArchive(t *testing.T) {
	forEachSink(t, func(t *testing.T, s Sink, objects func() map[string][]byte) {
		a := newAggregator(t, newMemory(t), WithArchive(s))
		deleted := expiry(4, "D", "2026-01-01T10:00:00Z")
		deleted.Expired = false
		gone := change(5, noon, map[string]int64{"rpm": 1}, nil)
		gone.Expired = true
		changes := []store.Change{
			expiry(1, "B", "2026-01-01T23:59:59Z"),
			expiry(2, "A", "2026-01-01T00:00:00Z"),
			expiry(3, "C", "2026-01-02T00:00:00Z"),
			deleted, gone,
			expiry(6, "E", "some time ago"), // whose day is that of its expiry
		}
		mustApply(t, a, changes...)
		first := objects()
		var names []string
		var lines [][]string
		for name := range first {
			names = append(names, name)
		}
		slices.Sort(names)
		for i, name := range names {
			lines = append(lines, linesOf(t, first[name]))
			day, file, _ := strings.Cut(name, "/day=")
			names[i] = day + "/day=" + strings.SplitN(file, "-", 2)[0]
			if !strings.HasSuffix(name, ".jsonl.gz") {
				t.Errorf("object %s has another suffix", name)
			}
		}
		wantNames := []string{
			"audit/year=2026/month=01/day=01/A", "audit/year=2026/month=01/day=02/C", "audit/year=2026/month=03/day=31/E",
		}
		if diff := cmp.Diff(wantNames, names); diff != "" {
			t.Fatalf("objects (-want +got):\n%s", diff)
		}
		wantLines := [][]string{
			{line("A", "2026-01-01T00:00:00Z"), line("B", "2026-01-01T23:59:59Z")},
			{line("C", "2026-01-02T00:00:00Z")},
			{line("E", "some time ago")},
		}
		compare.Equal(t, "lines", wantLines, lines)
		for _, l := range slices.Concat(lines...) {
			if !json.Valid([]byte(l)) {
				t.Errorf("line is not JSON: %s", l)
			}
		}
		slices.Reverse(changes)
		mustApply(t, a, slices.Concat(changes, changes)...)
		compare.Equal(t, "objects after a replay", first, objects())
	})
}

// broken is a sink that keeps nothing.
type broken struct{}

func (broken) Put(context.Context, string, []byte) error { return errDown }

// TestArchiveFails reports the events of the day that could not be stored.
func TestArchiveFails(t *testing.T) {
	a := newAggregator(t, newMemory(t), WithArchive(broken{}))
	other := expiry(2, "B", "2026-01-01T00:00:00Z")
	other.Expired = false
	errs := a.apply(context.Background(), []store.Change{expiry(1, "A", "2026-01-01T00:00:00Z"), other})
	if len(errs) != 2 || !errors.Is(errs[0], errDown) || errs[1] != nil {
		t.Errorf("apply() = %v, want the error of the sink for the first change", errs)
	}
	file := filepath.Join(t.TempDir(), "file")
	check.Fatal(t, "os.WriteFile()", os.WriteFile(file, nil, 0o600))
	if err := Directory(file).Put(t.Context(), "a/b", nil); err == nil {
		t.Error("Put() stores a file in a directory that is a file")
	}
}

// TestNoArchive does nothing with events where no archive is wanted.
func TestNoArchive(t *testing.T) {
	mustApply(t, newAggregator(t, newMemory(t)), expiry(1, "A", time.Now().Format(time.RFC3339)))
}
