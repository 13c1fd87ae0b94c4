package quotas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/quota"
	"github.com/zlimit/zlimit-go/quota/quotasqlite"
)

func statusCommand(sh *shell.Shell) *cobra.Command {
	var path, key string
	cmd := &cobra.Command{
		Use:   "status [MODEL | --key KEY]",
		Short: "Show the use of each quota, and when it has room again",
		Long: `Status shows the usage of each limit, for every model and key or for one. It
also shows when the limit alone has room for one more request, or for one more
token. It shows what the file says: counts in the memory of running processes
are not in a YAML file until they write it, and reports of providers are in no
file. A name that the file has usage of but no quota is shown with "?": the
processes that use it may have a quota of their own.

A YAML file is not touched. SQLite drops what has aged out when it is opened.`,
		Example: `  zlimit quota status
  zlimit quota status gpt-4o --state limits.db
  zlimit quota status -o json | jq '.models[] | {name, limits}'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			only, err := named(cmd, args, key)
			if err != nil {
				return err
			}
			f, err := stateFileAt(sh, path)
			if err != nil {
				return err
			}
			s, err := f.status(cmd.Context(), sh.Now(), only)
			if err != nil {
				return err
			}
			return sh.Print(s, s.write)
		},
	}
	stateFlag(cmd, &path)
	cmd.Flags().StringVar(&key, "key", "", "`KEY` to show in place of a model")
	return cmd
}

// A quotaStatus is the content of a state file.
type quotaStatus struct {
	State     string        `json:"state"`
	Format    string        `json:"format"`
	LastWrite time.Time     `json:"last_write"` // of the file, by whomever
	AsOf      time.Time     `json:"as_of"`
	Models    []quotaUsage  `json:"models"`
	Keys      []quotaUsage  `json:"keys"`
	Complete  bool          `json:"complete"` // nothing that processes have counted is missing
	Notes     []string      `json:"notes"`
	age       time.Duration // since the last write
}

// A quotaUsage is the used part of the quota of one model or key.
type quotaUsage struct {
	Name        string       `json:"name"`
	QuotaStored bool         `json:"quota_stored"` // the file has a quota of the name
	DayStart    *time.Time   `json:"day_start,omitempty"`
	Limits      []limitUsage `json:"limits"`
}

type limitUsage struct {
	Limit string       `json:"limit"`
	Used  int64        `json:"used"`
	Max   int64        `json:"max,omitempty"`             // left out: unlimited, or not known
	Room  *json.Number `json:"room_in_seconds,omitempty"` // until one more fits; left out: not known
	room  time.Duration
}

// status reads the file: everything, or of only one subject.
func (f *stateFile) status(ctx context.Context, now time.Time, only *subject) (quotaStatus, error) {
	s := quotaStatus{
		State: f.path, Format: f.format, LastWrite: f.written.UTC(), AsOf: now.UTC(), Complete: f.format == quota.BackendSQLite,
		Models: []quotaUsage{}, Keys: []quotaUsage{}, age: max(0, now.Sub(f.written)),
	}
	if err := f.exists(); err != nil {
		return s, err
	}
	l, err := f.copy(ctx, now)
	if err != nil {
		return s, err
	}
	found := false
	for _, of := range []struct {
		scope quota.Scope
		stats func(context.Context) (map[string]quota.Stats, error)
		to    *[]quotaUsage
	}{{quota.ScopeModel, l.AllStats, &s.Models}, {quota.ScopeKey, l.AllKeyStats, &s.Keys}} {
		all, err := of.stats(ctx)
		if err != nil {
			return s, err
		}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			at := subject{of.scope, name}
			if only != nil && at != *only {
				continue
			}
			found = true
			u, err := at.usage(ctx, l, all[name])
			if err != nil {
				return s, err
			}
			*of.to = append(*of.to, u)
		}
	}
	if only != nil && !found {
		return s, fmt.Errorf("%s has no quota and no usage of %v", f.path, only)
	}
	s.Notes = s.notes()
	return s, nil
}

func (s *quotaStatus) notes() []string {
	notes := []string{"what running processes have counted since the last write is not in the file"}
	if s.Complete {
		notes = []string{"limits that providers reported to running processes are not in the file"}
	}
	if slices.ContainsFunc(slices.Concat(s.Models, s.Keys), func(u quotaUsage) bool { return !u.QuotaStored }) {
		notes = append(notes, "?: the file has no quota of it; the processes that use it may have one of their own")
	}
	return notes
}

// copy returns a limiter in memory with the contents of the file. Nothing that is done to it gets into the
// file.
func (f *stateFile) copy(ctx context.Context, now time.Time) (*quota.Limiter, error) {
	if f.format == quota.BackendYAML {
		return f.open(ctx, now)
	}
	st, err := f.read(ctx, now)
	if err != nil {
		return nil, err
	}
	return quota.NewWithStore(ctx, &snapshot{state: st}, f.config(now))
}

// read returns the content of an SQLite file.
func (f *stateFile) read(ctx context.Context, now time.Time) (st quota.State, err error) {
	if err := f.refuseStranger(ctx); err != nil {
		return st, err
	}
	store, err := quotasqlite.Open(ctx, f.path, func() time.Time { return now })
	if err != nil {
		return st, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return store.State(ctx)
}

// A snapshot is a store with the former content of a file. It answers questions, and only that.
type snapshot struct {
	quota.Store // nil

	state quota.State
}

func (s *snapshot) State(context.Context) (quota.State, error) { return s.state, nil }

func (s *snapshot) History(_ context.Context, scope quota.Scope, name string) (quota.UsageStats, *quota.ModelQuota, error) {
	usage := s.state.State
	if scope == quota.ScopeKey {
		usage = s.state.KeyState
	}
	if q, ok := (*s.quotas(scope))[name]; ok {
		return usage[name], &q, nil
	}
	return usage[name], nil, nil
}

func (s *snapshot) Quota(_ context.Context, scope quota.Scope, name string) (quota.ModelQuota, bool, error) {
	q, ok := (*s.quotas(scope))[name]
	return q, ok, nil
}

func (s *snapshot) SetQuotas(_ context.Context, scope quota.Scope, quotas map[string]quota.ModelQuota, _ bool) error {
	to := s.quotas(scope)
	if *to == nil {
		*to = map[string]quota.ModelQuota{}
	}
	maps.Copy(*to, quotas)
	return nil
}

func (s *snapshot) quotas(scope quota.Scope) *map[string]quota.ModelQuota {
	if scope == quota.ScopeKey {
		return &s.state.KeyQuotas
	}
	return &s.state.Quotas
}

// usage returns the used part of each limit of a subject. It changes the subject's quota in the limiter, which must be
// a copy.
func (s subject) usage(ctx context.Context, l *quota.Limiter, stats quota.Stats) (quotaUsage, error) {
	used, allowed := split(stats)
	u := quotaUsage{Name: s.name, QuotaStored: allowed != notStored, Limits: []limitUsage{}}
	if !stats.DayStart.IsZero() {
		u.DayStart = &stats.DayStart
	}
	for i, limit := range quotaLimits {
		lu := limitUsage{Limit: limit.String(), Used: *limitIn(&used, limit)}
		if u.QuotaStored {
			lu.Max = *limitIn(&allowed, limit)
			var err error
			if lu.room, err = s.roomIn(ctx, l, limit, lu.Max); err != nil {
				return u, err
			}
			seconds := grammar.Seconds(lu.room)
			lu.Room = &seconds
		}
		if i < 3 || lu.Max > 0 { // requests and tokens per minute and requests per day always
			u.Limits = append(u.Limits, lu)
		}
	}
	return u, nil
}

// roomIn returns how long until one limit alone admits one more request, or one more token where it limits tokens.
func (s subject) roomIn(ctx context.Context, l *quota.Limiter, limit quota.Limit, value int64) (time.Duration, error) {
	var alone quota.ModelQuota
	*limitIn(&alone, limit) = value
	if err := s.setQuota(ctx, l, alone); err != nil {
		return 0, err
	}
	r := quota.Request{Model: s.name}
	if s.scope == quota.ScopeKey {
		r = quota.Request{Model: "any", Key: s.name}
		if err := l.SetQuota(ctx, r.Model, quota.ModelQuota{}); err != nil {
			return 0, err
		}
	}
	switch limit {
	case quota.LimitTPM, quota.LimitInputTPM, quota.LimitTPD:
		r.Input = 1
	case quota.LimitOutputTPM:
		r.Output = 1
	default: // a request without tokens
	}
	return l.TimeUntil(ctx, r)
}

func (s *quotaStatus) write(p *show.Page) {
	p.Linef("%s, last write %s, %v ago", s.State, s.LastWrite.Format(time.RFC3339), s.age.Truncate(time.Second))
	if len(s.Models)+len(s.Keys) == 0 {
		p.Linef("no quotas and no usage")
	}
	for _, of := range []struct {
		header string
		usages []quotaUsage
	}{{"model", s.Models}, {"key", s.Keys}} {
		if len(of.usages) == 0 {
			continue
		}
		var rows [][]string
		for _, u := range of.usages {
			name := u.Name
			for _, l := range u.Limits {
				most, room := "unlimited", "now"
				switch {
				case !u.QuotaStored:
					most, room = "?", "?"
				case l.Max > 0:
					most = show.Grouped(l.Max)
				}
				if l.room > 0 {
					room = "in " + show.Brief(l.room)
				}
				rows = append(rows, []string{name, l.Limit, show.Grouped(l.Used), most, room})
				name = ""
			}
		}
		p.Linef("")
		p.Table([]string{of.header, "limit", "used>", "max>", "room"}, rows)
	}
	p.Linef("")
	footnotes(p, s.Notes)
}
