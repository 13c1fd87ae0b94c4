package store

// OpenFile returns a store on a database file. It is nil in a program without such a store. Package zlimit/sqlite sets
// it while the program is initialized, and links the database with it.
var OpenFile func(path string, table Table) (Store, error)
