// Package rls serves Envoy's rate limit service v3 from a limiter. It reads the YAML of envoyproxy/ratelimit, and rules that map
// descriptors to entities and resources of the limiter.
//
// A request is decided as a whole: all descriptors are charged, or none. Estimates that the gateway sends as hits_addend are settled
// by a lease in the metadata of the answer.
package rls
