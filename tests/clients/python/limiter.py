"""Asks Tidegate whether users may pass: limiter.py HOST:PORT USER...

-USER gives a hit back.
"""

import os
import sys

import grpc
from grpc_status import rpc_status
from tidegate.v1 import tidegate_pb2 as api
from tidegate.v1 import tidegate_pb2_grpc as services

# How long your caller waits for Tidegate at most. It decides in a few milliseconds.
DEADLINE_SECONDS = int(os.environ.get("TIDEGATE_DEADLINE_MS", 100)) / 1000

# Keep one channel for the whole process. After an outage it connects again within a second.
OPTIONS = [("grpc.max_reconnect_backoff_ms", 1000)]


def check(limiter, user, hits=1):
    """Returns whether the user may pass, and a line that says why."""
    entry = api.Entry(key="user_id", value=user)
    request = api.CheckRateLimitRequest(
        domain="edge", descriptors=[api.Descriptor(entries=[entry])], hits=hits
    )
    try:
        answer = limiter.CheckRateLimit(request, timeout=DEADLINE_SECONDS)
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.INVALID_ARGUMENT:
            # The details name the field. Only another program can mend it.
            details = [d.type_url.rpartition(".")[2] for d in rpc_status.from_call(error).details]
            raise ValueError(f"{error.details()} ({', '.join(details)})") from error
        # Without an answer the request passes. Do not retry: hits may have been taken.
        return True, f"allowed, because Tidegate did not decide: {error.code().name}"
    if answer.decision == api.DECISION_ALLOWED:
        left = min((s.remaining for s in answer.statuses if s.HasField("remaining")), default=None)
        return True, "allowed, no limit applies" if left is None else f"allowed, {left} left"
    if answer.HasField("retry_after"):
        # For the header Retry-After: whole seconds, rounded up.
        wait = answer.retry_after.seconds + (answer.retry_after.nanos > 0)
        return False, f"rejected, retry after {wait} s"
    return False, "rejected, and never allowed in this form"


def refund(limiter, user):
    """Gives a hit back, for work that was not done. If it fails, the hit stays taken."""
    entry = api.Entry(key="user_id", value=user)
    request = api.RefundHitsRequest(domain="edge", descriptors=[api.Descriptor(entries=[entry])])
    limiter.RefundHits(request, timeout=DEADLINE_SECONDS)


def main():
    with grpc.insecure_channel(sys.argv[1], options=OPTIONS) as channel:
        limiter = services.RateLimitServiceStub(channel)
        for user in sys.argv[2:]:
            if user.startswith("-"):
                refund(limiter, user[1:])
            else:
                print(f"{user}: {check(limiter, user)[1]}")


if __name__ == "__main__":
    main()
