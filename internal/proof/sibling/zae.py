"""Does with zae-limiter what lines of JSON on the standard input say, at the times that they say, and answers with one line each."""

import dataclasses
import datetime
import json
import sys
import time

clock = time.time()
time.time = lambda: clock  # by which zae-limiter goes

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository, __version__  # noqa: E402
from zae_limiter.exceptions import ResourceDisabled  # noqa: E402
from zae_limiter.schedule import ScheduleEntry  # noqa: E402


def limit_of(l):
    """Returns a limit for its description: a session quota, a quota of the calendar, or one that refills by the minute."""
    if "name" not in l or "amount" not in l:
        return l
    if "session" in l:
        limit = Limit.quota(l["name"], l["amount"], reset_after=datetime.timedelta(seconds=l["session"]))
    elif "cron" in l:
        limit = Limit.quota(l["name"], l["amount"], cron=l["cron"], tz=l["zone"])
    else:
        limit = Limit.per_minute(l["name"], l["amount"])
    if "windows" in l:
        limit = limit.with_schedule(tuple(ScheduleEntry(**w) for w in l["windows"]))
    return dataclasses.replace(limit, soft=l.get("soft", False))


def take(limiter, ask):
    try:
        with limiter.acquire(ask["entity"], ask["resource"], ask["consume"], limits=ask["limits"]) as lease:
            if ask["back"]:
                lease.adjust(**{name: -n for name, n in ask["back"].items()})
        return "admitted"
    except RateLimitExceeded:
        return "rejected"
    except ResourceDisabled:
        return "disabled"


def main(endpoint, table, namespace, new):
    global clock
    if new:
        made = SyncRepository(name=table, endpoint_url=endpoint, region="us-east-1", _skip_deprecation_warning=True)
        made.create_table()
        made.register_namespace(namespace)
        made.set_version_record("0.10.0", lambda_version=__version__)
    repository = SyncRepository.connect(
        namespace, stack=table, endpoint_url=endpoint, region="us-east-1", config_cache_ttl=0, rejection_cache_ttl=0
    )
    limiter = SyncRateLimiter(repository=repository, speculative_writes=True)
    print('"ready"', flush=True)
    for line in sys.stdin:
        ask = json.loads(line, object_hook=limit_of)
        clock = ask["at"] / 1000
        if method := ask.get("call"):
            getattr(repository, method)(*ask["args"], **ask["named"])
            answer = "done"
        else:
            answer = take(limiter, ask)
        print(json.dumps(answer), flush=True)


main(*sys.argv[1:])
