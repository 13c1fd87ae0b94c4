package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A release is the deployed state of a version: all that brings the stack back to it. The stack's bucket has one for
// each of the last versions. A way back needs neither an older command nor files kept elsewhere.
type release struct {
	Version      string    `json:"version"`
	Layout       string    `json:"layout"`
	Template     string    `json:"template"`
	Parameters   []string  `json:"parameters"` // of the template
	CodeKey      string    `json:"code_key,omitempty"`
	Architecture string    `json:"architecture,omitempty"`
	Deployed     time.Time `json:"deployed_at"`
}

const (
	releasesPrefix = "releases/"
	codePrefix     = "code/"
	keptReleases   = 5              // versions to go back to
	codeAge        = 24 * time.Hour // of code that no release names, before it is deleted: another deployment may be about to use it
)

// ErrNoRelease says that the stack never had a version, or had it too long ago for the bucket to keep it.
var ErrNoRelease = errors.New("the stack's bucket has no such version")

// errForeign says that another program has put an object in the place of releases.
var errForeign = errors.New("is no release")

func releaseKey(version string) string { return releasesPrefix + version + ".json" }

// A bucket is that of a stack, which keeps code and releases.
type bucket struct {
	*account
	name string
}

// bucketOf returns the bucket of a stack, without a name if it has none.
func (a *account) bucketOf(ctx context.Context, stack string) (bucket, error) {
	ids, err := a.resources(ctx, stack)
	return bucket{a, ids["Bucket"]}, err
}

// currentRelease returns the release of this version as a stack has it.
func currentRelease(s *types.Stack, now time.Time) *release {
	has := parameters(s)
	r := &release{Version: zlimit.Version, Layout: zlimit.SchemaVersion, Template: Template, CodeKey: has["CodeKey"], Architecture: has["Architecture"], Deployed: now.UTC()}
	for _, st := range settings {
		r.Parameters = append(r.Parameters, st.Parameter)
	}
	r.Parameters = append(r.Parameters, "CodeBucket", "CodeKey", "Architecture")
	return r
}

// keepRelease records the new state of a stack, and deletes releases and code to which no way leads back any more.
func (b bucket) keepRelease(ctx context.Context, s *types.Stack) error {
	if b.name == "" {
		return nil
	}
	next := currentRelease(s, b.now())
	had, err := b.readRelease(ctx, releaseKey(next.Version))
	switch {
	case errors.Is(err, ErrNoRelease), errors.Is(err, errForeign):
	case err != nil:
		return err
	case had.Template == next.Template && had.CodeKey == next.CodeKey:
		return nil
	}
	if err := b.forgetReleases(ctx, next); err != nil { // first: the next deployment finishes it after a crash
		return err
	}
	text, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if err := b.put(ctx, releaseKey(next.Version), "application/json", text); err != nil {
		return fmt.Errorf("stack: keep the release: %w", err)
	}
	return nil
}

// readRelease returns a release; [ErrNoRelease] if there is none.
func (b bucket) readRelease(ctx context.Context, key string) (*release, error) {
	out, err := call(ctx, b.account, b.clients.S3.GetObject, &s3.GetObjectInput{Bucket: &b.name, Key: &key})
	if hasCode(err, "NotFound", "NoSuchKey") {
		return nil, ErrNoRelease
	}
	if err != nil {
		return nil, fmt.Errorf("stack: read %s of bucket %s: %w", key, b.name, err)
	}
	text, err := io.ReadAll(out.Body)
	if err = errors.Join(err, out.Body.Close()); err != nil {
		return nil, fmt.Errorf("stack: read %s of bucket %s: %w", key, b.name, err)
	}
	r := &release{}
	if json.Unmarshal(text, r) != nil || r.Version == "" || r.Template == "" {
		return nil, fmt.Errorf("stack: %s of bucket %s %w", key, b.name, errForeign)
	}
	return r, nil
}

func (b bucket) listObjects(ctx context.Context, prefix string) (all []s3types.Object, err error) {
	var next *string
	for {
		page, err := call(ctx, b.account, b.clients.S3.ListObjectsV2, &s3.ListObjectsV2Input{Bucket: &b.name, Prefix: &prefix, ContinuationToken: next})
		if err != nil {
			return nil, fmt.Errorf("stack: list bucket %s: %w", b.name, err)
		}
		all = append(all, page.Contents...)
		if next = page.NextContinuationToken; next == nil {
			return all, nil
		}
	}
}

// codeForm is the form of the keys of code that deployments have uploaded.
var codeForm = regexp.MustCompile(`^code/[0-9a-f]{64}\.zip$`)

// forgetReleases deletes all but the last releases before a new one, and code that is of none of them.
func (b bucket) forgetReleases(ctx context.Context, next *release) error {
	found, err := b.listObjects(ctx, releasesPrefix)
	if err != nil {
		return err
	}
	releases := []*release{next}
	for i := range found {
		if value(found[i].Key) == releaseKey(next.Version) {
			continue
		}
		r, err := b.readRelease(ctx, value(found[i].Key))
		if errors.Is(err, errForeign) {
			return nil // without it the needed code is unknown
		}
		if err != nil {
			return err
		}
		releases = append(releases, r)
	}
	slices.SortFunc(releases, func(x, y *release) int { return y.Deployed.Compare(x.Deployed) })
	used := map[string]bool{next.CodeKey: true}
	var gone []s3types.ObjectIdentifier
	for i, r := range releases {
		if i < keptReleases {
			used[r.CodeKey] = true
		} else {
			gone = append(gone, s3types.ObjectIdentifier{Key: aws.String(releaseKey(r.Version))})
		}
	}
	code, err := b.listObjects(ctx, codePrefix)
	if err != nil {
		return err
	}
	for i := range code {
		key, at := value(code[i].Key), code[i].LastModified
		if codeForm.MatchString(key) && !used[key] && at != nil && b.now().Sub(*at) > codeAge {
			gone = append(gone, s3types.ObjectIdentifier{Key: &key})
		}
	}
	for chunk := range slices.Chunk(gone, 1000) {
		if _, err := call(ctx, b.account, b.clients.S3.DeleteObjects, &s3.DeleteObjectsInput{Bucket: &b.name, Delete: &s3types.Delete{Objects: chunk}}); err != nil {
			return fmt.Errorf("stack: delete old code: %w", err)
		}
	}
	return nil
}

// Versions returns the versions that [Options.Version] can bring a stack back to, the latest deployment first.
func (m *Manager) Versions(ctx context.Context, name string) ([]string, error) {
	if err := validateName(name); err != nil {
		return nil, err
	}
	b, err := m.bucketOf(ctx, name)
	if err != nil || b.name == "" {
		return nil, err
	}
	return b.versions(ctx)
}

func (b bucket) versions(ctx context.Context) ([]string, error) {
	found, err := b.listObjects(ctx, releasesPrefix)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b s3types.Object) int { return aws.ToTime(b.LastModified).Compare(aws.ToTime(a.LastModified)) })
	versions := []string{}
	for i := range found {
		versions = append(versions, strings.TrimSuffix(strings.TrimPrefix(value(found[i].Key), releasesPrefix), ".json"))
	}
	return versions, nil
}

// back returns the release that the options ask for, nil when they ask for this version.
func (d *deployer) back(ctx context.Context, s *types.Stack) (*release, error) {
	if d.Version == "" {
		return nil, nil
	}
	if s == nil {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, d.Name)
	}
	b, err := d.bucketOf(ctx, d.Name)
	if err != nil {
		return nil, err
	}
	if b.name == "" {
		return nil, fmt.Errorf("stack: %s has no bucket, and so nothing that leads back to version %s", d.Name, d.Version)
	}
	r, err := b.readRelease(ctx, releaseKey(d.Version))
	if errors.Is(err, ErrNoRelease) {
		versions, listed := b.versions(ctx)
		return nil, errors.Join(fmt.Errorf("stack: %w %s; it has %s", ErrNoRelease, d.Version, strings.Join(versions, ", ")), listed)
	}
	if err != nil {
		return nil, err
	}
	return r, d.fits(ctx, tableOf(s), r.Version)
}

// fits returns an error when a version is older than the oldest client that a table admits: its aggregator would be refused.
func (a *account) fits(ctx context.Context, table, version string) error {
	oldest, err := a.oldest(ctx, table)
	if err != nil {
		return err
	}
	if oldest != "" && compareVersions(version, oldest) < 0 {
		return fmt.Errorf("stack: table %s is for versions from %s on, and %s would be refused; there is no way back to it but a restored backup", table, oldest, version)
	}
	return nil
}

// aimBack is a step back to a release: its template and its code, with all settings as they are.
func aimBack(r *release, s *types.Stack) aim {
	had := parameters(s)
	a := aim{on: map[string]bool{}}
	for _, name := range r.Parameters {
		switch {
		case name == "CodeKey" && r.CodeKey != "":
			a.set(name, r.CodeKey)
		case name == "Architecture" && r.Architecture != "":
			a.set(name, r.Architecture)
		default:
			a.keep(name, had)
		}
	}
	for _, st := range settings {
		if st.Kind == KindSwitch {
			a.on[st.Name] = had[st.Parameter] == "true"
		}
	}
	return a
}
