package limits

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
)

// A file that scale writes begins with a comment that names the store and the namespace of the limits.
const (
	scaledMark    = "# limits of factor 1 of "
	namespaceMark = ", namespace "
)

// A scaledStore is what the name of a store means, however it is spelled. An empty part is not known.
type scaledStore struct {
	scheme, place            string // the place is a path, or the name of a table
	region, account, profile string // of a table
	endpoint                 string // "" for that of the region
}

// storeNamed returns the store of a name. The environment says what the name leaves to it.
func storeNamed(dsn string, env func(string) string) scaledStore {
	scheme, rest, _ := strings.Cut(dsn, ":")
	s := scaledStore{scheme: scheme, place: rest}
	if scheme != "dynamodb" {
		return s
	}
	place, query, _ := strings.Cut(rest, "?")
	values, _ := url.ParseQuery(query) // the store is open already, or the line names none
	s.place = place
	if parts := strings.SplitN(place, ":", 6); len(parts) == 6 { // an ARN
		s.region, s.account, s.place = parts[3], parts[4], strings.TrimPrefix(parts[5], "table/")
	}
	s.region = cmp.Or(values.Get("region"), s.region, env("AWS_REGION"), env("AWS_DEFAULT_REGION"))
	s.profile = cmp.Or(values.Get("profile"), env("AWS_PROFILE"))
	s.endpoint = strings.TrimSuffix(cmp.Or(values.Get("endpoint"), env("AWS_ENDPOINT_URL_DYNAMODB"), env("AWS_ENDPOINT_URL")), "/")
	return s
}

// String returns the name of the store with all that is known of it.
func (s scaledStore) String() string {
	if s.scheme == "sqlite" {
		if path, err := filepath.Abs(s.place); err == nil {
			return "sqlite:" + path
		}
	}
	if s.scheme != "dynamodb" {
		return s.scheme + ":" + s.place
	}
	place, values := s.place, url.Values{}
	if s.account != "" {
		place = fmt.Sprintf("arn:aws:dynamodb:%s:%s:table/%s", s.region, s.account, s.place)
	}
	for key, value := range map[string]string{"region": s.region, "profile": s.profile, "endpoint": s.endpoint} {
		if value != "" {
			values.Set(key, value)
		}
	}
	if len(values) == 0 {
		return "dynamodb:" + place
	}
	return "dynamodb:" + place + "?" + values.Encode()
}

// is reports whether two names mean the same store. A path of the other one may begin at a folder, too.
func (s scaledStore) is(other scaledStore, folder string) bool {
	if s.scheme != other.scheme {
		return false
	}
	if s.scheme == "sqlite" {
		return sameFile(s.place, other.place) || !filepath.IsAbs(other.place) && sameFile(s.place, filepath.Join(folder, other.place))
	}
	agree := func(a, b string) bool { return a == b || a == "" || b == "" }
	return s.place == other.place && s.endpoint == other.endpoint &&
		agree(s.region, other.region) && agree(s.account, other.account) && agree(s.profile, other.profile)
}

// sameFile reports whether two paths are of one file, also through links.
func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	if err == nil && err2 == nil {
		return os.SameFile(x, y)
	}
	a, err = filepath.Abs(a)
	b, err2 = filepath.Abs(b)
	return err == nil && err2 == nil && a == b
}

func scaledHeader(sh *shell.Shell, dsn string) string {
	return fmt.Sprintf("%s%v%s%s", scaledMark, storeNamed(dsn, sh.Env), namespaceMark, sh.Namespace)
}

// checkStore refuses a file that scale wrote for another store or namespace.
func (f *limitsFile) checkStore(sh *shell.Shell, dsn string) error {
	named, ours := strings.CutPrefix(f.firstLine, scaledMark)
	if !ours {
		return shell.Usagef("limits scale: %s names no store, so it is not known whose limits of factor 1 it has: scale writes a file that does not exist "+
			"yet; a file that you wrote begins with the line %q", f.path, scaledHeader(sh, dsn))
	}
	store, namespace := named, ""
	if at := strings.LastIndex(named, namespaceMark); at >= 0 {
		store, namespace = named[:at], named[at+len(namespaceMark):]
	}
	nothing := func(string) string { return "" }
	this := storeNamed(dsn, sh.Env)
	if namespace == sh.Namespace && this.is(storeNamed(store, nothing), filepath.Dir(f.path)) {
		return nil
	}
	return shell.Usagef("limits scale: %s has the limits of factor 1 of %s, and not of %v%s%s, whose limits may be scaled now: "+
		"--file must be the file that scale wrote for this store and namespace; only if there is none and its limits are not scaled now, "+
		"name a file that does not exist yet", f.path, named, this, namespaceMark, sh.Namespace)
}
