"""Does with zae-limiter what lines of JSON on the standard input say, at the times that they say, and answers with one line each."""

import datetime
import json
import sys
import time

clock = time.time()
time.time = lambda: clock  # by which zae-limiter goes

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository  # noqa: E402
from zae_limiter.exceptions import ResourceDisabled  # noqa: E402
from zae_limiter.schedule import ScheduleEntry  # noqa: E402


def limit_of(l):
    """Returns a limit: a session quota, one with a window, or a quota of the calendar."""
    if "session" in l:
        return Limit.quota(l["name"], l["amount"], reset_after=datetime.timedelta(seconds=l["session"]))
    if "window" in l:
        entry = ScheduleEntry(cron=l["window"], tz=l["zone"], scale=l["scale"])
        return Limit.per_minute(l["name"], l["amount"]).with_schedule((entry,))
    if "cron" in l:
        return Limit.quota(l["name"], l["amount"], cron=l["cron"], tz=l["zone"])
    return Limit.per_minute(l["name"], l["amount"], soft=l.get("soft", False))


def main(endpoint, table, namespace):
    global clock
    repository = SyncRepository.connect(
        namespace, stack=table, endpoint_url=endpoint, region="us-east-1", config_cache_ttl=0, rejection_cache_ttl=0
    )
    limiter = SyncRateLimiter(repository=repository, speculative_writes=True)
    for line in sys.stdin:
        ask = json.loads(line)
        clock = ask["at"] / 1000
        answer = "done"
        match ask["do"]:
            case "set":
                limiter.set_resource_defaults(ask.get("resource", "gpt-4"), [limit_of(l) for l in ask["limits"]])
            case "switch":
                how, entity, resource = ask["how"], ask.get("entity"), ask.get("resource")
                if entity is None:
                    ways = {
                        "disable": repository.disable_resource, "enable": repository.enable_resource,
                        "bypass": repository.bypass_resource, "leave": repository.clear_resource_disabled,
                    }
                    ways[how](resource)
                else:
                    ways = {
                        "disable": repository.disable_entity, "enable": repository.enable_entity,
                        "bypass": repository.bypass_entity, "leave": repository.clear_entity_disabled,
                    }
                    ways[how](entity, resource)
            case "cascade":
                policy, entity, resource = ask["policy"], ask.get("entity"), ask.get("resource")
                if entity is None and policy is None:
                    repository.clear_resource_cascade(resource)
                elif entity is None:
                    repository.set_resource_cascade(resource, policy)
                elif policy is None:
                    repository.clear_entity_cascade(entity, resource)
                else:
                    repository.set_entity_cascade(entity, policy, resource)
            case "create":
                repository.create_entity(ask["entity"], parent_id=ask.get("parent"), cascade=ask.get("cascade", False))
            case "move":
                repository.set_parent(ask["entity"], ask["parent"])
            case "reset":
                repository.reset_bucket("key-1", ask.get("resource", "gpt-4"), ask["limits"], idempotency_key=ask["id"])
            case "top up":
                repository.top_up("key-1", ask.get("resource", "gpt-4"), ask["amounts"], idempotency_key=ask["id"])
            case _:
                try:
                    with limiter.acquire(ask.get("entity", "key-1"), ask.get("resource", "gpt-4"), ask["consume"]) as lease:
                        if ask.get("back"):
                            lease.adjust(**{name: -n for name, n in ask["back"].items()})
                    answer = "admitted"
                except RateLimitExceeded:
                    answer = "rejected"
                except ResourceDisabled:
                    answer = "disabled"
        print(json.dumps(answer), flush=True)


main(*sys.argv[1:])
