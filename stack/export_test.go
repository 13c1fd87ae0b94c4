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
