// Package browsertest tests the page in a real browser, and draws the pictures of its documentation. It is a module of its own, since
// no program needs a browser.
package browsertest
