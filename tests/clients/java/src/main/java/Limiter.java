import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.tidegate.v1.CheckRateLimitRequest;
import io.tidegate.v1.CheckRateLimitResponse;
import io.tidegate.v1.Decision;
import io.tidegate.v1.Descriptor;
import io.tidegate.v1.Entry;
import io.tidegate.v1.LimitStatus;
import io.tidegate.v1.RateLimitServiceGrpc;
import io.tidegate.v1.RateLimitServiceGrpc.RateLimitServiceBlockingStub;
import io.tidegate.v1.RefundHitsRequest;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;

/** Asks Tidegate whether users may pass: java Limiter HOST:PORT USER...; -USER gives a hit back. */
public final class Limiter {
    /** How long your caller waits for Tidegate at most. It decides in a few milliseconds. */
    private static final long DEADLINE_MS =
            Long.parseLong(System.getenv().getOrDefault("TIDEGATE_DEADLINE_MS", "100"));

    record Answer(boolean allowed, String why) {}

    private final RateLimitServiceBlockingStub stub;

    Limiter(ManagedChannel channel) {
        stub = RateLimitServiceGrpc.newBlockingStub(channel);
    }

    private RateLimitServiceBlockingStub stub() {
        return stub.withDeadlineAfter(DEADLINE_MS, TimeUnit.MILLISECONDS);
    }

    private static Descriptor about(String user) {
        Entry entry = Entry.newBuilder().setKey("user_id").setValue(user).build();
        return Descriptor.newBuilder().addEntries(entry).build();
    }

    /** Whether the user may pass, and why. */
    Answer check(String user, long hits) {
        CheckRateLimitRequest request = CheckRateLimitRequest.newBuilder()
                .setDomain("edge").addDescriptors(about(user)).setHits(hits).build();
        CheckRateLimitResponse answer;
        try {
            answer = stub().checkRateLimit(request);
        } catch (StatusRuntimeException error) {
            Status.Code code = error.getStatus().getCode();
            // Only another program can mend an invalid request. The message names the field.
            if (code == Status.Code.INVALID_ARGUMENT) throw error;
            // Without an answer the request passes. Do not retry: hits may have been taken.
            return new Answer(true, "allowed, because Tidegate did not decide: " + code);
        }
        if (answer.getDecision() == Decision.DECISION_ALLOWED) {
            return new Answer(true, "allowed, " + left(answer));
        }
        if (!answer.hasRetryAfter()) {
            return new Answer(false, "rejected, and never allowed in this form");
        }
        // For the header Retry-After: whole seconds, rounded up.
        var wait = answer.getRetryAfter();
        long seconds = wait.getSeconds() + (wait.getNanos() > 0 ? 1 : 0);
        return new Answer(false, "rejected, retry after " + seconds + " s");
    }

    /** How many hits the tightest limit has left. */
    private static String left(CheckRateLimitResponse answer) {
        var left = answer.getStatusesList().stream()
                .filter(LimitStatus::hasRemaining).mapToLong(LimitStatus::getRemaining).min();
        return left.isPresent() ? left.getAsLong() + " left" : "no limit applies";
    }

    /** Gives a hit back, for work that was not done. If it fails, the hit stays taken. */
    void refund(String user) {
        stub().refundHits(RefundHitsRequest.newBuilder()
                .setDomain("edge").addDescriptors(about(user)).build());
    }

    public static void main(String[] args) throws InterruptedException {
        // Keep one channel for the whole process.
        ManagedChannel channel = NettyChannelBuilder.forTarget(args[0]).usePlaintext().build();
        Limiter limiter = new Limiter(channel);
        for (String user : Arrays.asList(args).subList(1, args.length)) {
            if (user.startsWith("-")) {
                limiter.refund(user.substring(1));
            } else {
                System.out.println(user + ": " + limiter.check(user, 1).why());
            }
        }
        channel.shutdownNow().awaitTermination(1, TimeUnit.SECONDS);
    }
}
