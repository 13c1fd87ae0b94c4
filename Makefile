# Run `make` for a list of the targets.

GO ?= go

# How tests are compiled: without DWARF and, below 2 GiB, without garbage collection. Both take compilers a third of
# their time. Only a debugger needs DWARF. The vet of go test is left out, since make lint does it. In the large clients that services
# generate, of which tests call few functions, nothing is inlined. SQLite is inlined: without that its tests take twice the time, which
# is more than the compiler gains. And gin in the examples has no MessagePack. The linters and the list of exports read compiled
# packages. They have the same flags: with others, all dependencies are compiled twice, in 400 seconds of a processor.
CLIENTS := github.com/openai/openai-go/v3... github.com/anthropics/anthropic-sdk-go... google.golang.org/genai... \
	$(addprefix github.com/aws/aws-sdk-go-v2/service/,bedrockruntime... cloudformation... cloudwatch... lambda... s3... sts...)
ifeq ($(findstring -dwarf=false,$(GOFLAGS)),)
LEAN := $(strip -tags=nomsgpack $(GOFLAGS) -vet=off -gcflags=all=-dwarf=false \
	$(foreach client,$(CLIENTS),'-gcflags=$(client)=-dwarf=false -l') '-toolexec=env GOGC=off GOMEMLIMIT=2GiB')
generate api check-generate check quick test long race race-quick mean mean-quick infra lint mutate mutate-quick rules: export GOFLAGS := $(LEAN)
endif

# How the tests run.
TIMEOUT   ?= 20m
TESTFLAGS ?=
PKG       ?= ./...
FUZZTIME  ?= 5s

PROGRAMS  ?= 1000000
MEAN      ?= 1
MUTANTS   ?=
BUDGET    ?= 10m
SCALE     ?=
RATES     ?= 50,400,2000
TAG       ?=

# How the benchmarks run.
BENCH      ?= .
BENCHPKG   ?= ./zlimit/... ./internal/layout ./httplimit
BENCHTIME  ?= 1s
BENCHCOUNT ?= 1

# The DynamoDB engine of the tests. ZLIMIT_ENGINE names another binary, and
# ZLIMIT_TEST_ENDPOINT an engine that runs already; neither is downloaded.
ENGINE_VERSION := $(shell sed -n 's/^const Version = "\(.*\)"$$/\1/p' internal/tool/engine/engine.go)
ENGINE_CACHED  := $(CURDIR)/.cache/engine/$(ENGINE_VERSION)/dynoxide
ifndef ZLIMIT_ENGINE
ZLIMIT_ENGINE := $(ENGINE_CACHED)
endif
ifndef ZLIMIT_TEST_ENDPOINT
ENGINE_FILE := $(filter $(ENGINE_CACHED),$(ZLIMIT_ENGINE))
endif
WITH_ENGINE := ZLIMIT_REQUIRE_ENGINE=1 ZLIMIT_ENGINE="$(ZLIMIT_ENGINE)"

# The packages that goroutines share.
CONCURRENT := ./zlimit/... ./internal/protocol ./internal/store/... ./internal/stream ./internal/table ./aggregator ./httplimit ./quota/...

# The tools of make infra, pinned in scripts/infra.
INFRA := $(CURDIR)/.cache/infra

GOLANGCI_LINT := .cache/bin/golangci-lint
GOVULNCHECK   := golang.org/x/vuln/cmd/govulncheck@v1.8.0

# Modules below the root but tools, each with the command after it. They are run where PKG is everything.
MODULES := scripts/modules.sh
ifneq ($(PKG),./...)
MODULES := true
endif

# What make quick leaves out: what is slow, and the stores that write to a disk or an engine.
QUICK := -short -skip '.*/^(dynamodb|sqlite|file.*)$$'

# What make quick and make test begin with: the slowest packages, so that no processor waits for one of them at the end.
SLOWEST := ./zlimit ./internal/proof/explore ./cmd/zlimit/internal/cli ./aggregator ./stack ./quota ./internal/store/dynamo
ifneq ($(PKG),./...)
SLOWEST :=
endif

# What make mean-quick runs: short tests on the engine, except some that take long.
MEAN_QUICK := -short -skip '/^(memory|file)$$|^Test(UsagePages|UsageQueries|EntityDeletionSurvivesCrashes|PressureSplits|Lambda)$$'

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help help-all demo quick infra infra-tools test race race-quick mean mean-quick generate api check-generate tidy lint vuln fuzz mutate mutate-quick rules long soak explore scale outage bench size check build release image tags engine clean

# The targets that a change needs. make help-all lists the others as well.
DAILY := demo quick test generate lint check bench explore release

help: ## print the targets that a change needs
	@$(MAKE) -s help-all | grep -E '^  make ($(subst $(eval) ,|,$(DAILY))) '
	@echo '  make help-all         print all targets'

help-all: ## print all targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

demo: ## show a fleet of replicas that shares limits, and prove that none was exceeded
	$(GO) run ./cmd/zlimit/demo

quick: ## test what a change touches, in about a minute: short tests, on the store in memory
	GOGC=400 ZLIMIT_ENGINE=none ZLIMIT_REQUIRE_ENGINE= $(GO) test $(QUICK) -p 4 -timeout $(TIMEOUT) $(TESTFLAGS) $(SLOWEST) $(PKG) # most wait more than they compute

# Some tests wait more than they compute, and a linker uses one processor: the nested modules are tested beside the root.
test: engine ## run all tests, with a DynamoDB engine; PKG and TESTFLAGS narrow it down
	@others=$$(mktemp) && code=0 && \
	{ $(WITH_ENGINE) $(MODULES) $(GO) test -timeout $(TIMEOUT) $(TESTFLAGS) ./... >"$$others" 2>&1 & } && trap "kill $$!" INT TERM && \
	{ GOGC=400 $(WITH_ENGINE) scripts/slowest.sh $(GO) test -p 3 -timeout $(TIMEOUT) $(TESTFLAGS) $(SLOWEST) $(PKG) || code=$$?; } && \
	{ wait $$! || code=$$?; } && cat "$$others" && rm "$$others" && exit $$code

race: engine ## run all tests with the race detector, in random order
	$(WITH_ENGINE) $(GO) test -race -shuffle=on -timeout $(TIMEOUT) $(TESTFLAGS) $(PKG)
	$(WITH_ENGINE) $(MODULES) $(GO) test -race -shuffle=on -timeout $(TIMEOUT) $(TESTFLAGS) ./...

race-quick: engine ## run the short tests of what goroutines share, with the race detector, in random order
	$(WITH_ENGINE) $(GO) test -race -short -shuffle=on -timeout $(TIMEOUT) $(TESTFLAGS) $(CONCURRENT)

infra-tools: ## install what make infra needs below .cache
	scripts/infra/install.sh $(INFRA)

infra: engine infra-tools ## check the template of a deployment with cfn-lint, checkov, moto, the CDK and another evaluator of policies, the gateway with SDKs for Python, the server behind an Envoy, its page in a browser, and tables beside zae-limiter, installed below .cache
	ZLIMIT_INFRA='$(INFRA)' $(WITH_ENGINE) $(GO) test -count=1 -timeout $(TIMEOUT) -run 'Calls|Trials|Infra' -skip Simulate $(TESTFLAGS) ./stack
	ZLIMIT_INFRA='$(INFRA)' $(GO) test -C examples -count=1 -timeout $(TIMEOUT) -run Python $(TESTFLAGS) ./gateway
	ZLIMIT_INFRA='$(INFRA)' $(GO) test -C server -count=1 -timeout $(TIMEOUT) -run Envoy $(TESTFLAGS) .
	$(if $(ZLIMIT_SOAK),ZLIMIT_EXHAUSTIVE=1 $(GO) test -count=1 -timeout $(TIMEOUT) -run Image ./cmd/zlimit/internal/release)
	ZLIMIT_BROWSER='$(INFRA)/browser' $(GO) test -C dashboard/browsertest -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) .
	ZLIMIT_INFRA='$(INFRA)' $(GO) test -count=1 -timeout $(TIMEOUT) -run Simulate $(TESTFLAGS) ./stack # asks what the others wrote
	ZLIMIT_ZAE='$(INFRA)/zae/bin/python' $(WITH_ENGINE) $(GO) test -count=1 -timeout $(TIMEOUT) -run Sibling $(TESTFLAGS) ./zlimit ./cmd/zlimit/internal/migrate

generate: ## regenerate *_gen.go and docs/schema.md from spec/schema.yaml and the methods of package zlimit
	$(GO) generate ./...
	$(GO) generate -C examples ./...

api: ## list what the packages of all modules export to users in docs/api.txt; make test fails when that is stale
	$(GO) run ./gen/api

check-generate: ## fail if a generated file is stale
	@GO="$(GO)" scripts/check-generate.sh

# -e, since tests of dependencies import modules that a proxy may lack.
tidy: ## fail if a go.mod or go.sum is not as go mod tidy leaves it
	$(GO) mod tidy -e -diff
	$(MODULES) $(GO) mod tidy -e -diff

vuln: ## look for known vulnerabilities in what the code calls; asks vuln.go.dev
	$(GO) run $(GOVULNCHECK) ./...
	$(MODULES) $(GO) run $(GOVULNCHECK) ./...

lint: $(GOLANGCI_LINT) ## check style, layering, formatting and the words of texts
	scripts/prose.sh
	$(GOLANGCI_LINT) run ./...
	$(MODULES) $(CURDIR)/$(GOLANGCI_LINT) run ./...

fuzz: ## run every fuzz target for FUZZTIME (5s)
	@GO="$(GO)" scripts/fuzz.sh $(FUZZTIME)

mutate: engine ## make each term of each condition true, and see which test notices, within BUDGET; MUTANTS chooses
	$(WITH_ENGINE) $(GO) run ./internal/proof/mutate -only '$(MUTANTS)' -budget '$(BUDGET)'

mutate-quick: engine ## run the half of mutate whose tests are small programs and run in milliseconds
	$(WITH_ENGINE) $(GO) run ./internal/proof/mutate -by '^./internal/(layout|protocol)$$' -budget '$(BUDGET)'

rules: engine ## break each rule of waiting, of rollover, of stalls and of slots, and see which test notices; MUTANTS chooses
	$(WITH_ENGINE) $(GO) run ./internal/proof/mutate -rules -only '$(MUTANTS)'

mean: engine ## run the suites against a DynamoDB that conflicts, throttles and loses replies; MEAN is the seed, and more
	ZLIMIT_MEAN='$(MEAN)' $(WITH_ENGINE) $(GO) test -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) ./zlimit ./aggregator

mean-quick: engine ## run what of mean takes less than a minute, on the engine alone
	ZLIMIT_MEAN='1,lag=20ms' $(WITH_ENGINE) $(GO) test -count=1 -timeout $(TIMEOUT) $(MEAN_QUICK) ./zlimit ./aggregator

# The packages with tests that have a long form, as internal/proof/soak says.
LONG := ./zlimit ./aggregator ./internal/proof/explore ./internal/proof/scale ./internal/stream ./cmd/zlimit/internal/cli ./cmd/zlimit/internal/migrate ./internal/deploy/provision ./stack ./gen/...

long: engine ## run the long forms of the tests whose usual form make test runs
	ZLIMIT_SOAK=1 $(WITH_ENGINE) $(GO) test -p 1 -timeout 0 $(TESTFLAGS) $(LONG)

soak: engine ## run make long, random programs against the witness for long, interleavings of slots, 10,000 callers that wait in four processes, the ledger of usage, and 10,000 chaotic answers of models; PROGRAMS says how many
	$(if $(TESTFLAGS),,$(MAKE) --no-print-directory long) # TESTFLAGS repeat a program
	$(GO) test ./aggregator -run Ledger -timeout 0 $(TESTFLAGS) -ledger.requests 100000
	$(GO) test -C llm -race -run Chaos -timeout 0 $(TESTFLAGS) . -chaos.streams 10000
	$(GO) test ./internal/bucket -run TimelinePrograms -timeout 0 $(TESTFLAGS) -timeline.programs $(PROGRAMS)
	$(GO) test ./internal/protocol -run SlotsAgainstASet -timeout 0 $(TESTFLAGS) -slots.walks $(PROGRAMS)
	$(WITH_ENGINE) $(GO) test ./zlimit -run ProcessesWaitInOneQueue -timeout 0 $(TESTFLAGS) -queue.sleeps
	$(WITH_ENGINE) $(GO) test ./zlimit ./internal/bucket -run 'Programs|Exact|Intervals|Conserve|Stale' -timeout 0 $(TESTFLAGS) -rapid.checks=$(PROGRAMS)

explore: ## run small programs in every order of their calls, for BUDGET (10m), and say how far it is; 0 goes through all of them
	$(GO) test ./internal/proof/explore -run 'Known|Grammars' -v -timeout 0 $(TESTFLAGS) -explore.all -explore.budget $(BUDGET)

scale: ## run fleets against a model of DynamoDB, and draw docs/scale.md; SCALE chooses cases by name
	$(GO) test ./internal/proof/scale -run 'Scenarios|Page' -v -timeout 0 $(TESTFLAGS) -scale.all -scale.only '$(SCALE)'

outage: engine ## take DynamoDB away in all ways, with RATES of requests a second, and draw the table of docs/failures.md
	$(WITH_ENGINE) $(GO) test ./internal/proof/outage -run Outage -v -timeout 0 $(TESTFLAGS) -outage.rates $(RATES)

bench: engine ## compare with the bare SDK, memory and quota with other limiters, and the gateway with a bare proxy; BENCH, BENCHPKG, BENCHTIME and BENCHCOUNT choose
	$(WITH_ENGINE) $(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) -count $(BENCHCOUNT) -timeout 30m $(BENCHPKG)
	GO="$(GO)" scripts/beside.sh # the hot path beside a pinned commit
	$(GO) test -C zlimit/bench -run '^$$' -bench '$(BENCH)' -benchmem -benchtime 200ms -count $(BENCHCOUNT) -timeout 30m ./...
	$(GO) test -C llm -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) -count $(BENCHCOUNT) -timeout 30m ./...
	$(GO) test -C examples -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -count $(BENCHCOUNT) -timeout 30m ./gateway
	$(GO) test -C quota/bench -run '^$$' -bench '$(BENCH)' -benchmem -benchtime 200ms -count $(BENCHCOUNT) -timeout 30m ./...

size: ## print the size of programs on DynamoDB and SQLite beside one with the bare SDK
	@GO="$(GO)" scripts/size.sh

# What draws at random, and may find something on any day, runs every night instead: mean, race, fuzz, soak. So do the long forms, all of
# mutate, and rules.
check: ## everything a change must pass, as CI runs it
	scripts/check.sh tidy check-generate test 'infra lint mutate-quick' # infra waits for other programs most of the time

build: ## build bin/zlimit
	$(GO) build -trimpath -o bin/zlimit ./cmd/zlimit

release: ## build dist/zlimit-* for all platforms, with the function of Lambda inside, a list of modules and hashes; TAG must be that of the version
	$(GO) run ./cmd/zlimit/internal/release -tag '$(TAG)'

image: ## build dist/image, an image of zlimitd for two platforms as an OCI layout, without a daemon
	$(GO) run ./cmd/zlimit/internal/release -image dist/image

tags: ## tag all modules of this commit of this version, and print the command that publishes them
	@$(GO) run ./cmd/zlimit/internal/release -tag-modules

engine: $(ENGINE_FILE) ## install the pinned DynamoDB engine of the tests

$(ENGINE_CACHED):
	$(GO) run ./internal/proof/enginetest/fetch

$(GOLANGCI_LINT): tools/go.mod tools/go.sum
	$(GO) build -C tools -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

clean: ## remove what was built and downloaded here
	rm -rf bin dist .cache
