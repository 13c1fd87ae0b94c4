package store

// A Handle is a store as users of the SDK hold it. They may close the store, and reach no other method of it. The packages of
// this module take the store out by [Of].
type Handle struct {
	impl     Store
	embedded bool
}

// NewHandle returns the handle of a store. An embedded store is set up by the program that opens it.
func NewHandle(s Store, embedded bool) Handle { return Handle{s, embedded} }

// Of returns the store of a handle, nil for the zero Handle.
func Of(h Handle) Store { return h.impl }

// IsEmbedded reports whether the store of a handle is set up by the program that opens it.
func IsEmbedded(h Handle) bool { return h.embedded }

// Close releases everything that the store opened. The zero Handle has nothing to release.
func (h Handle) Close() error {
	if h.impl == nil {
		return nil
	}
	return h.impl.Close()
}
