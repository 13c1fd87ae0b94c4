package stack

// AfterCode are the resources that wait for the code.
func AfterCode() (ids []string) {
	for _, r := range afterCode {
		ids = append(ids, r.resource)
	}
	return ids
}

// CompareVersions is compareVersions.
var CompareVersions = compareVersions

// FixedCost is fixedCost.
var FixedCost = fixedCost

// SelfOn is self.
var SelfOn = self

// ChangeOf and Lost are what a plan makes of a change, and what it refuses; Failure is why an operation failed.
var (
	ChangeOf = changeOf
	Lost     = lost
	Failure  = failure
)
