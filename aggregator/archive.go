package aggregator

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/tool/atomicfile"
)

// A Sink keeps archived objects. It must be safe for concurrent use.
type Sink interface {
	// Put stores content under a name with slashes between its parts. It replaces earlier content.
	Put(ctx context.Context, name string, content []byte) error
}

// An S3Client is the part of the AWS SDK's S3 client that a sink calls. Every [*s3.Client] is one.
type S3Client interface {
	PutObject(ctx context.Context, in *s3.PutObjectInput, opts ...func(*s3.Options)) (*s3.PutObjectOutput, error)
}

// S3 returns a sink of objects in a bucket, under a prefix unless it is empty, with one PutObject for each.
func S3(client S3Client, bucket, prefix string) Sink { return s3Sink{client, bucket, prefix} }

type s3Sink struct {
	client         S3Client
	bucket, prefix string
}

func (s s3Sink) Put(ctx context.Context, name string, content []byte) error {
	_, err := s.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket:      aws.String(s.bucket),
		Key:         aws.String(path.Join(s.prefix, name)),
		Body:        bytes.NewReader(content),
		ContentType: aws.String("application/gzip"),
	})
	return err
}

// Directory returns a sink that stores objects as files in a directory. The directory is created as needed. A file is written completely or
// not at all.
func Directory(path string) Sink { return directory(path) }

type directory string

func (d directory) Put(_ context.Context, name string, content []byte) error {
	return atomicfile.Write(filepath.Join(string(d), filepath.FromSlash(name)), content)
}

// WithArchive keeps audit events that have expired; by default they are lost. The events of a batch that happened on
// one day (in UTC) become an object of gzipped lines, each the JSON of an event:
//
//	audit/year=2026/month=03/day=31/01KN…-5f0c….jsonl.gz
//
// Its name has the id of its first event, and a hash of the ids of all of them. So a repeated batch replaces its objects. If the changes
// are divided into other batches, an event may be stored twice, so readers must deduplicate by event_id.
func WithArchive(s Sink) Option { return func(o *options) { o.archive = s } }

// An entry is an audit event on its way to the archive.
type entry struct {
	index int // of the change in its batch
	event auditEvent
}

// An auditEvent is the item of one.
type auditEvent struct {
	layout.AuditKey
	item expr.Item
	time time.Time // zero if the item has none
}

// auditEventOf returns the audit event that an item is; false when it is the item of another record.
func auditEventOf(item expr.Item) (auditEvent, bool) {
	key, ok := layout.ParseAuditKey(store.KeyOf(item))
	if !ok {
		return auditEvent{}, false
	}
	decoded, _ := layout.DecodeAudit(item) // what can be read of it
	return auditEvent{key, item, layout.ParseTime(decoded.Timestamp)}, true
}

// attributes returns the attributes of an item for the archive: all except keys and the time of expiry.
func (e *auditEvent) attributes() (kept expr.Item) {
	for _, a := range e.item {
		if !layout.IsKeyAttribute(a.Name) && a.Name != layout.Table.TTL {
			kept = append(kept, a)
		}
	}
	return kept
}

// expired returns the audit events that expired with changes, by the day of the event.
func (a *Aggregator) expired(changes []store.Change) map[string][]entry {
	days := map[string][]entry{}
	if a.options.archive == nil {
		return days
	}
	for i := range changes {
		c := &changes[i]
		if !c.Expired || c.Old == nil {
			continue
		}
		if e, ok := auditEventOf(c.Old); ok {
			at := e.time
			if at.IsZero() {
				at = c.At
			}
			day := at.UTC().Format("year=2006/month=01/day=02")
			days[day] = append(days[day], entry{i, e})
		}
	}
	return days
}

// archive stores the events of one day as an object.
func (a *Aggregator) archive(ctx context.Context, day string, entries []entry) error {
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.event.EventID, b.event.EventID), cmp.Compare(a.event.NS, b.event.NS), cmp.Compare(a.event.Entity, b.event.Entity))
	})
	var content bytes.Buffer
	hash := sha256.New()
	zipped := gzip.NewWriter(&content)
	lines := json.NewEncoder(zipped)
	lines.SetEscapeHTML(false)
	for i := range entries {
		e := &entries[i].event
		if i > 0 && e.AuditKey == entries[i-1].event.AuditKey {
			continue
		}
		key := e.Key()
		if _, err := io.WriteString(hash, key.PK+"\n"+key.SK+"\n"); err != nil {
			return err
		}
		line := plain(expr.Map(e.attributes())).(map[string]any)
		line["namespace_id"] = e.NS
		if err := lines.Encode(line); err != nil {
			return fmt.Errorf("aggregator: archive %s: %w", key.PK, err)
		}
	}
	if err := zipped.Close(); err != nil {
		return err
	}
	name := fmt.Sprintf("audit/%s/%s-%s.jsonl.gz", day, url.PathEscape(entries[0].event.EventID), hex.EncodeToString(hash.Sum(nil)[:8]))
	if err := a.options.archive.Put(ctx, name, content.Bytes()); err != nil {
		return fmt.Errorf("aggregator: archive %s: %w", name, err)
	}
	return nil
}

// plain returns a value as encoding/json takes it.
func plain(v expr.Value) any {
	switch v.Kind() {
	case expr.KindS:
		return v.Text()
	case expr.KindN:
		return json.Number(v.Number())
	case expr.KindBool:
		return v.True()
	case expr.KindSS, expr.KindL:
		list := make([]any, len(v.Elements()))
		for i, e := range v.Elements() {
			list[i] = plain(e.Value)
		}
		return list
	case expr.KindM:
		m := make(map[string]any, len(v.Elements()))
		for _, e := range v.Elements() {
			m[e.Name] = plain(e.Value)
		}
		return m
	default:
		return nil
	}
}
