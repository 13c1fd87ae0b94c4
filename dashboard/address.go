package dashboard

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// everyone stands for all entities, or all resources, in the address of a screen. It is no name.
const everyone = "*"

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

// entityURL is the screen of an entity. Without a resource of its own it shows one that the entity has used.
func entityURL(entity, resource string) string {
	if resource == zlimit.DefaultResource || resource == everyone {
		resource = ""
	}
	return address("/entity", "id", entity, "resource", resource)
}

// editURL is the screen of a level.
func editURL(at zlimit.Level) string {
	return address("/limits/edit", "entity", at.Entity, "resource", at.Resource)
}

// Link is the address of the screen with other parameters, in pairs of a name and a value; "" leaves one out.
func (v view) Link(pairs ...string) string {
	q := maps.Clone(v.query)
	for pair := range slices.Chunk(pairs, 2) {
		if q.Set(pair[0], pair[1]); pair[1] == "" {
			q.Del(pair[0])
		}
	}
	return "/" + strings.TrimPrefix(v.Screen, "now") + "?" + q.Encode()
}

// Section is the entry of the navigation that the screen belongs to.
func (v view) Section() string {
	section, _, _ := strings.Cut(v.Screen, "/")
	return cmp.Or(map[string]string{"entity": "entities", "why": "entities"}[section], strings.TrimPrefix(section, "now"))
}

// A reach is a time that a screen can look back, or around another one.
type reach struct {
	Key, Text string
	d         time.Duration
}

var (
	backwards = []reach{{"24h", "24 hours", 24 * time.Hour}, {"7d", "7 days", 7 * 24 * time.Hour}, {"30d", "30 days", 30 * 24 * time.Hour}}
	around    = []reach{
		{"10m", "10 minutes around it", 10 * time.Minute}, {"1h", "1 hour around it", time.Hour}, {"6h", "6 hours around it", 6 * time.Hour},
	}
)

// reachOf returns the one of three times that a parameter asks for, or else the usual one.
func reachOf(of []reach, q url.Values, name, usual string) (reach, error) {
	asked := cmp.Or(q.Get(name), usual)
	i := slices.IndexFunc(of, func(r reach) bool { return r.Key == asked })
	if i < 0 {
		return reach{}, mustBe(name, of[0].Key+", "+of[1].Key+" or "+of[2].Key, asked)
	}
	return of[i], nil
}
