package page

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// everyone stands for all entities, or all resources, in the address of a screen. It is no name.
const everyone = "*"

// A tab leads to another view of a screen.
type tab struct {
	Text, URL string
	Current   bool
}

// address is the address of a screen, with parameters in pairs of a name and a value. Those without a value are left out.
func address(path string, pairs ...string) string {
	q := url.Values{}
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			q.Set(pair[0], pair[1])
		}
	}
	return strings.TrimSuffix(path+"?"+q.Encode(), "?")
}

// entityURL is the screen of an entity.
func entityURL(entity, resource string) string {
	if resource == zlimit.DefaultResource {
		resource = ""
	}
	return address("/entity", "id", entity, "resource", resource)
}

// editURL is the screen of a level.
func editURL(at zlimit.Level) string {
	return address("/limits/edit", "entity", at.Entity, "resource", at.Resource)
}

// screenURL is the path of the screen that a request, or a stream of changes, is for.
func screenURL(r *http.Request) string {
	if r.URL.Path != "/events" {
		return r.URL.Path
	}
	return "/" + strings.TrimPrefix(r.URL.Query().Get("screen"), "now")
}

// A reach is a time that a screen can look back, or around another one.
type reach struct {
	key, Text string
	d         time.Duration
}

var (
	backwards = []reach{{"24h", "24 hours", 24 * time.Hour}, {"7d", "7 days", 7 * 24 * time.Hour}, {"30d", "30 days", 30 * 24 * time.Hour}}
	around    = []reach{
		{"10m", "10 minutes around it", 10 * time.Minute}, {"1h", "1 hour around it", time.Hour}, {"6h", "6 hours around it", 6 * time.Hour},
	}
)

// reachOf returns the one of three times that a parameter asks for, or else the usual one, with the tabs of all.
func reachOf(of []reach, path string, q url.Values, name, usual string) (found reach, tabs []tab, err error) {
	asked := cmp.Or(q.Get(name), usual)
	q.Del("screen")
	for _, each := range of {
		q.Set(name, each.key)
		tabs = append(tabs, tab{each.Text, path + "?" + q.Encode(), each.key == asked})
		if each.key == asked {
			found = each
		}
	}
	if found.d == 0 {
		err = &statusError{http.StatusBadRequest, fmt.Sprintf("%s must be %s, %s or %s, and not %.20q", name, of[0].key, of[1].key, of[2].key, asked)}
	}
	return found, tabs, err
}
