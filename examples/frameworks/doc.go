// Package frameworks limits the handlers of chi, echo, gin and fiber by package httplimit, in a few lines each.
package frameworks
