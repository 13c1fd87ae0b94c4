package llm_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestJSON(t *testing.T) {
	report := llm.Report{
		Call: llm.Call{API: llm.APIAnthropicMessages, Model: "m", Stream: true, Input: 1, Output: 2}, Entity: "alice",
		Resource: "m", Status: 200, Usage: llm.Usage{Model: "m", Input: 1, CacheRead: 3, Complete: true},
		Charged: zlimit.Amounts{"rpm": 1}, Err: errors.New("no route"),
	}
	const want = `{"call":{"api":"anthropic messages","model":"m","stream":true,"input":1,"output":2},"entity":"alice",` +
		`"resource":"m","status":200,"usage":{"model":"m","input":1,"cache_read":3,"cache_write":0,"output":0,"reasoning":0,"complete":true},` +
		`"charged":{"rpm":1},"error":"no route"}`
	if got, err := json.Marshal(report); string(got) != want || err != nil {
		t.Errorf("Marshal() = %s, %v, want %s", got, err, want)
	}
	if got, err := json.Marshal(llm.API("")); string(got) != `""` || err != nil {
		t.Errorf("Marshal() of no API = %s, %v", got, err)
	}
}
