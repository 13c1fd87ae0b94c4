package rls

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A held is a lease as it is sealed.
type held struct {
	Token string   `json:"t"`
	Names []string `json:"n"` // limits that the actual amount is of
}

// separator is between the leases of a request. Sealed leases have none.
const separator = ","

// handOn closes the leases of a request. It returns those of estimates as text that settles them, "" for none. If one
// cannot be handed on, all of them are given back.
func (s *Service) handOn(ctx context.Context, d *domain, asks []ask) (string, error) {
	var sealed []string
	for i := range asks {
		a := &asks[i]
		switch {
		case a.lease == nil:
			continue
		case d.Lease == 0 || len(a.estimated) == 0:
			if err := a.lease.Commit(ctx); err != nil {
				return "", err
			}
			continue
		}
		text, err := s.seal(ctx, d, a)
		if err != nil {
			var open []*ask
			for j := range asks {
				open = append(open, &asks[j])
			}
			s.giveBack(ctx, open)
			return "", err
		}
		sealed = append(sealed, text)
	}
	return strings.Join(sealed, separator), nil
}

// seal returns the signed form of a lease.
func (s *Service) seal(ctx context.Context, d *domain, a *ask) (string, error) {
	if s.options.Sealer == nil {
		return "", status.Error(codes.FailedPrecondition, "leases need keys that sign them")
	}
	token, err := a.lease.Token(d.Lease)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(held{Token: token, Names: a.estimated})
	if err != nil {
		return "", err
	}
	return s.options.Sealer.Seal(ctx, string(text), d.Lease)
}

// settle settles the leases of an earlier request, whose actual amount is the hits.
func (s *Service) settle(ctx context.Context, a *ask) error {
	if s.options.Sealer == nil {
		return status.Error(codes.FailedPrecondition, "leases need keys that sign them")
	}
	sealed := strings.Split(a.sealed, separator)
	if len(sealed) > MaxDescriptors {
		return invalid("lease", strconv.Itoa(len(sealed)), "must have leases of at most "+strconv.Itoa(MaxDescriptors)+" descriptors")
	}
	leases := make([]held, len(sealed))
	for i, text := range sealed {
		lease, err := s.options.Sealer.Open(ctx, text)
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(lease), &leases[i]); err != nil {
			return status.Error(codes.InvalidArgument, "lease: is not of this service")
		}
	}
	var failed error
	for _, lease := range leases {
		actual := make(zlimit.Amounts, len(lease.Names))
		for _, name := range lease.Names {
			actual[name] = a.hits
		}
		failed = errors.Join(failed, s.options.Limiter.Settle(ctx, lease.Token, actual))
	}
	return failed
}
