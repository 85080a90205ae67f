// Asks Tidegate whether users may pass: limiter HOST:PORT USER...
// -USER gives a hit back.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	api "example.com/limiter/tidegatev1"
)

// How long your caller waits for Tidegate at most. It decides in a few milliseconds.
var deadline = 100 * time.Millisecond

func init() {
	if ms, err := strconv.Atoi(os.Getenv("TIDEGATE_DEADLINE_MS")); err == nil {
		deadline = time.Duration(ms) * time.Millisecond
	}
}

func descriptors(user string) []*api.Descriptor {
	return []*api.Descriptor{{Entries: []*api.Entry{{Key: "user_id", Value: user}}}}
}

// check returns whether the user may pass, and why.
func check(limiter api.RateLimitServiceClient, user string, hits uint64) (bool, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	answer, err := limiter.CheckRateLimit(ctx, &api.CheckRateLimitRequest{
		Domain: "edge", Descriptors: descriptors(user), Hits: proto.Uint64(hits),
	})
	switch code := status.Code(err); {
	case code == codes.InvalidArgument:
		// Only another program can mend an invalid request. The message names the field.
		return false, "", err
	case err != nil:
		// Without an answer the request passes. Do not retry: hits may have been taken.
		return true, fmt.Sprintf("allowed, because Tidegate did not decide: %v", code), nil
	case answer.Decision == api.Decision_DECISION_ALLOWED:
		return true, "allowed, " + left(answer), nil
	case answer.RetryAfter == nil:
		return false, "rejected, and never allowed in this form", nil
	}
	// For the header Retry-After: whole seconds, rounded up.
	wait := (answer.RetryAfter.AsDuration() + time.Second - 1) / time.Second
	return false, fmt.Sprintf("rejected, retry after %d s", wait), nil
}

// left says how many hits the tightest limit has left.
func left(answer *api.CheckRateLimitResponse) string {
	text, least := "no limit applies", ^uint64(0)
	for _, status := range answer.Statuses {
		if status.Remaining != nil && *status.Remaining < least {
			least = *status.Remaining
			text = fmt.Sprintf("%d left", least)
		}
	}
	return text
}

// refund gives a hit back, for work that was not done. If it fails, the hit stays taken.
func refund(limiter api.RateLimitServiceClient, user string) error {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	request := &api.RefundHitsRequest{Domain: "edge", Descriptors: descriptors(user)}
	_, err := limiter.RefundHits(ctx, request)
	return err
}

func main() {
	// Keep one connection for the whole process. After an outage it connects again within a second.
	connect := grpc.ConnectParams{Backoff: backoff.DefaultConfig}
	connect.Backoff.MaxDelay = time.Second
	connection, err := grpc.NewClient(os.Args[1], grpc.WithConnectParams(connect),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	limiter := api.NewRateLimitServiceClient(connection)
	for _, user := range os.Args[2:] {
		var why string
		if back, ok := strings.CutPrefix(user, "-"); ok {
			err = refund(limiter, back)
		} else if _, why, err = check(limiter, user, 1); err == nil {
			fmt.Printf("%s: %s\n", user, why)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
}
