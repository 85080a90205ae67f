//! Cases in which time passes, on the clock of a replay.

use tidegate::limit::Algorithm;

use super::{Case, START_MS};
use crate::counters::checked;

const MINUTE_MS: u64 = 60_000;

/// Runs all of them.
pub async fn check_all<'a>(case: impl Fn(&str) -> Case<'a>) {
    expiry(case("expiry")).await;
    retries(case("retry")).await;
    clock_steps_back(case("clock steps back")).await;
    changed_limit(case("changed limit")).await;
    if case("").algorithm == Algorithm::LeakyBucket {
        delays(case("delay")).await;
    }
}

async fn expiry(mut case: Case<'_>) {
    let limit = checked(&case.spec(10, MINUTE_MS));
    let taken = case.decide([case.take("a", &limit, 10)]).await;
    assert!(taken.allowed, "{}", case.name);
    let reset_ms = taken.statuses[0].reset_after_ms;
    assert!((1..=2 * MINUTE_MS).contains(&reset_ms), "{}: {taken:?}", case.name);
    case.now_ms = Some(START_MS + reset_ms - 1);
    assert!(case.remaining("a", &limit).await < 10, "{}: a millisecond before", case.name);
    case.now_ms = Some(START_MS + reset_ms);
    assert_eq!(case.remaining("a", &limit).await, 10, "{}", case.name);
    assert!(case.decide([case.take("a", &limit, 10)]).await.allowed, "{}", case.name);
}

async fn retries(mut case: Case<'_>) {
    let limit = checked(&case.spec(10, MINUTE_MS));
    let take = |case: &Case<'_>| [case.take("a", &limit, 4)];
    for later_ms in [0, 7_000] {
        case.now_ms = Some(START_MS + later_ms);
        assert!(case.decide(take(&case)).await.allowed, "{}", case.name);
    }
    case.now_ms = Some(START_MS + 7_001);
    let full = case.decide([case.take("a", &limit, 9)]).await;
    let retry_ms = full.statuses[0].retry_after_ms.expect("a wait");
    assert!(!full.allowed, "{}", case.name);
    case.now_ms = Some(START_MS + 7_001 + retry_ms - 1);
    assert!(!case.decide([case.peek("a", &limit, 9)]).await.allowed, "{}: early", case.name);
    case.now_ms = Some(START_MS + 7_001 + retry_ms);
    assert!(case.decide([case.take("a", &limit, 9)]).await.allowed, "{}", case.name);
}

async fn clock_steps_back(mut case: Case<'_>) {
    let limit = checked(&case.spec(10, MINUTE_MS));
    case.now_ms = Some(START_MS + MINUTE_MS);
    assert!(case.decide([case.take("a", &limit, 1)]).await.allowed, "{}", case.name);
    case.now_ms = Some(START_MS);
    assert_eq!(case.remaining("a", &limit).await, 9, "{}: the hit still counts", case.name);
    let taken = case.decide([case.take("a", &limit, 9)]).await;
    assert_eq!((taken.allowed, taken.remaining()), (true, [0]), "{}", case.name);
    case.now_ms = Some(START_MS + MINUTE_MS);
    assert_eq!(case.remaining("a", &limit).await, 0, "{}: taken at the later moment", case.name);
}

async fn changed_limit(case: Case<'_>) {
    let (before, after) = (case.spec(10, MINUTE_MS), case.spec(20, MINUTE_MS));
    let taken = case.decide([case.take("a", &checked(&before), 10)]).await;
    assert_eq!((taken.allowed, taken.remaining()), (true, [0]), "{}", case.name);
    assert_eq!(case.remaining("a", &checked(&after)).await, 10, "{}", case.name);
}

async fn delays(case: Case<'_>) {
    let limit = checked(&case.spec(10, MINUTE_MS));
    for delay_ms in [0, 6_000, 12_000] {
        let taken = case.decide([case.take("a", &limit, 1)]).await;
        assert_eq!(taken.statuses[0].delay_ms, delay_ms, "{}", case.name);
    }
}
