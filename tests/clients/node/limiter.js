// Asks Tidegate whether users may pass: node limiter.js PROTO_FOLDER HOST:PORT USER...
// -USER gives a hit back.

import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

// How long your caller waits for Tidegate at most. It decides in a few milliseconds.
const DEADLINE_MS = Number(process.env.TIDEGATE_DEADLINE_MS ?? 100);

// Keep one client for the whole process. After an outage it connects again within a second.
const OPTIONS = { "grpc.max_reconnect_backoff_ms": 1000 };

const [protos, address, ...users] = process.argv.slice(2);
const definition = loader.loadSync("tidegate/v1/tidegate.proto", {
  includeDirs: [protos],
  longs: Number, // Tidegate's numbers are exact up to 2^53.
  enums: String,
  defaults: true,
});
const { RateLimitService } = grpc.loadPackageDefinition(definition).tidegate.v1;
const limiter = new RateLimitService(address, grpc.credentials.createInsecure(), OPTIONS);

function call(method, request) {
  const send = limiter[method].bind(limiter);
  const options = { deadline: Date.now() + DEADLINE_MS };
  return new Promise((resolve, reject) => {
    send(request, options, (error, answer) => (error ? reject(error) : resolve(answer)));
  });
}

const about = (user) => [{ entries: [{ key: "user_id", value: user }] }];

/** Returns whether the user may pass, and a line that says why. */
async function check(user, hits = 1) {
  let answer;
  try {
    answer = await call("CheckRateLimit", { domain: "edge", descriptors: about(user), hits });
  } catch (error) {
    // Only another program can mend an invalid request. The message names the field.
    if (error.code === grpc.status.INVALID_ARGUMENT) throw error;
    // Without an answer the request passes. Do not retry: hits may have been taken.
    const code = grpc.status[error.code];
    return { allowed: true, why: `allowed, because Tidegate did not decide: ${code}` };
  }
  if (answer.decision === "DECISION_ALLOWED") {
    const left = answer.statuses.filter((s) => s.remaining !== undefined).map((s) => s.remaining);
    const why = left.length ? `allowed, ${Math.min(...left)} left` : "allowed, no limit applies";
    return { allowed: true, why };
  }
  if (!answer.retryAfter) return { allowed: false, why: "rejected, and never allowed in this form" };
  // For the header Retry-After: whole seconds, rounded up.
  const wait = answer.retryAfter.seconds + (answer.retryAfter.nanos > 0 ? 1 : 0);
  return { allowed: false, why: `rejected, retry after ${wait} s` };
}

/** Gives a hit back, for work that was not done. If it fails, the hit stays taken. */
function refund(user) {
  return call("RefundHits", { domain: "edge", descriptors: about(user) });
}

for (const user of users) {
  if (user.startsWith("-")) await refund(user.slice(1));
  else console.log(`${user}: ${(await check(user)).why}`);
}
limiter.close();
