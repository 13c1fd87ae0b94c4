"""Does with zae-limiter what lines of JSON on the standard input say, at the times that they say, and answers with one line each."""

import json
import sys
import time

clock = time.time()
time.time = lambda: clock  # by which zae-limiter goes

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository  # noqa: E402


def main(endpoint, table, namespace):
    global clock
    repository = SyncRepository.connect(
        namespace, stack=table, endpoint_url=endpoint, region="us-east-1", config_cache_ttl=0, rejection_cache_ttl=0
    )
    limiter = SyncRateLimiter(repository=repository, speculative_writes=True)
    leases = {}
    for line in sys.stdin:
        ask = json.loads(line)
        clock = ask["at"] / 1000
        answer = "done"
        if ask["do"] == "set":
            quota = Limit.quota("day", ask["amount"], cron=ask["cron"], tz=ask["zone"])
            limiter.set_resource_defaults("gpt-4", [quota, Limit.per_minute("rpm", 60)])
        else:
            try:
                with limiter.acquire("key-1", "gpt-4", {"day": ask["amount"], "rpm": 1}) as lease:
                    if ask["back"]:
                        lease.adjust(day=-ask["back"])
                answer = "admitted"
            except RateLimitExceeded:
                answer = "rejected"
        print(json.dumps(answer), flush=True)


main(*sys.argv[1:])
