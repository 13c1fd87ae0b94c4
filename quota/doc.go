// Package quota limits calls to LLM providers from one machine. It limits
// requests per minute, tokens per minute and requests per day for every model,
// with exact sliding windows. It also has limits on input tokens, output
// tokens, tokens per day, and per caller's key.
//
// A [Limiter] holds its windows in memory and can keep them in a YAML file
// ([Limiter.Persist], [Limiter.Load]). Or it works directly on an SQLite file
// that several processes share ([NewWithSQLite]). Three ways to use it, from
// plain to exact:
//
//   - [Limiter.CanSend] before a call and [Limiter.RecordUsage] after it. Two
//     callers who ask at the same time may both be admitted.
//   - [Limiter.Reserve] checks and records in one step. The [Reservation] is
//     settled with the real token counts, or cancelled.
//   - [Limiter.Wait] reserves as soon as the windows have room.
//
// # Windows
//
// The minute is a sliding log: an entry counts until exactly one minute after it
// was made, and not at that instant. The day is a period of 24 hours that begins
// with the first request recorded after the last day ended. A check or a look at
// the statistics does not begin it. A limit of zero is no limit. A model without a
// quota is rejected if a provider's default quotas are loaded, and not limited
// otherwise; see [Config.Strict]. A dated release of a model, such as
// gpt-4o-2024-11-20, counts as the model.
//
// # Cost
//
// A decision takes constant time for any number of entries in the window, and allocates nothing. Entries are dropped as
// they age, and a model or key whose windows have emptied is forgotten. Importing the package starts nothing, and the
// SQLite engine is linked only by programs that import quota/quotasqlite.
package quota
