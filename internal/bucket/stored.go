package bucket

// A StoredLimit is a limit in the units of the table, as a level has it, in its family of limits or in that of session quotas. JSON has the
// names of the fields of both families: it is the form of a copy of a level.
type StoredLimit struct {
	Name         string `json:"name"`
	Capacity     int64  `json:"cp"` // tokens
	Burst        int64  `json:"-"`  // in older tables, tokens: in place of the capacity
	RefillAmount int64  `json:"ra"` // tokens
	RefillPeriod int64  `json:"rp"` // seconds
	Times        string `json:"rsched,omitempty"`
	Carry        int64  `json:"cy,omitempty"` // tokens
	Windows      string `json:"sched,omitempty"`
	Floors       string `json:"fl,omitempty"`
	Term         int64  `json:"tm,omitempty"`  // seconds
	Session      int64  `json:"rsa,omitempty"` // seconds
	Soft         bool   `json:"soft,omitempty"`
	Shadow       bool   `json:"sh,omitempty"`
}
