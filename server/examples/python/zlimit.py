"""A client of zlimitd with the standard library alone: acquire an estimate, do the work, settle what it was."""
import contextlib, json, os, time, urllib.error, urllib.request, uuid

URL, KEY = os.environ.get("ZLIMIT_URL", "http://127.0.0.1:8080"), os.environ.get("ZLIMIT_KEY", "")

class Problem(Exception):
    """A reply that is no success: body has status, code, detail and limits; retry_after is in seconds, or None."""
    def __init__(self, body, retry_after):
        super().__init__(body.get("detail") or body.get("title"))
        self.body, self.code, self.retry_after = body, body.get("code"), retry_after and int(retry_after)

def post(path, body, key=None, tries=3):
    """Sends a body, and again after a failure of the network or of the server: all calls here are safe to repeat."""
    headers = {"Content-Type": "application/json", **({"Authorization": "Bearer " + KEY} if KEY else {}), **({"Idempotency-Key": key} if key else {})}
    for left in reversed(range(tries)):
        try:
            request = urllib.request.Request(URL + path, json.dumps(body).encode(), headers)
            with urllib.request.urlopen(request, timeout=body.get("max_wait_ms", 0) / 1000 + 15) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as e:
            if e.code < 500 or not left:
                raise Problem(json.load(e) if "json" in e.headers["Content-Type"] else {"title": str(e)}, e.headers["Retry-After"]) from None
        except OSError:
            if not left:
                raise
        time.sleep(0.05 * 2 ** (tries - left))

@contextlib.contextmanager
def limited(entity, resource, key=None, max_wait=0, **estimate):
    """Within, set lease["actual"]. An exception returns everything; a crash leaves the estimate charged."""
    body = {"entity": entity, "resource": resource, "consume": estimate, "lease": "10m", "max_wait_ms": int(max_wait * 1000)}
    lease = post("/v1/acquire", body, key or str(uuid.uuid4()))
    try:
        yield lease
    except BaseException:
        post("/v1/rollback", {"lease": lease["lease"]})
        raise
    post("/v1/settle", {"lease": lease["lease"], **({"actual": lease["actual"]} if "actual" in lease else {})})
