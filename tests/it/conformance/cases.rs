//! Cases that hold on any clock.

use tidegate::decide::CounterRequest;
use tidegate::decision::{Enforcement, Source};
use tidegate::limit::Algorithm;

use super::{Case, FOREVER_MS, Subject};
use crate::counters::in_quota_group;

/// Runs all of them.
pub async fn check_all<'a>(case: impl Fn(&str) -> Case<'a>) {
    all_or_nothing(&case("all or nothing")).await;
    peeks(&case("peek")).await;
    no_hits(&case("no hits")).await;
    refunds(&case("refund")).await;
    refunds_are_never_rejected(&case("refund of none")).await;
    overdraft(&case("overdraft")).await;
    overdraft_beside_another(&case("overdraft beside another")).await;
    // Only a fixed window counts rejected hits.
    if case("").algorithm == Algorithm::FixedWindow {
        counted(&case("counted")).await;
    }
    shadow(&case("shadow")).await;
    quotas(&case("quotas")).await;
    too_many_hits(&case("too many hits")).await;
    many_counters(&case("many counters")).await;
    at_once(&case("at once")).await;
}

async fn all_or_nothing(case: &Case<'_>) {
    let (wide, narrow) = (case.limit(10), case.limit(3));
    let both = |hits| [case.take("wide", &wide, hits), case.take("narrow", &narrow, hits)];
    let rejected = case.decide(both(4)).await;
    assert!(!rejected.allowed, "{}: {rejected:?}", case.name);
    assert_eq!(rejected.within(), [true, false], "{}", case.name);
    let allowed = case.decide(both(3)).await;
    assert!(allowed.allowed, "{}: nothing was taken before: {allowed:?}", case.name);
    assert_eq!(allowed.remaining(), [7, 0], "{}", case.name);
    assert!(!case.decide(both(1)).await.allowed, "{}", case.name);
    assert_eq!(case.remaining("wide", &wide).await, 7, "{}", case.name);
}

async fn peeks(case: &Case<'_>) {
    let limit = case.limit(5);
    for (hits, fits) in [(1, true), (5, true), (6, false)] {
        let peek = case.decide([case.peek("a", &limit, hits)]).await;
        assert_eq!((peek.allowed, peek.remaining()), (fits, [5]), "{}: {hits}", case.name);
    }
    let taken = case.decide([case.take("a", &limit, 5)]).await;
    assert_eq!((taken.allowed, taken.remaining()), (true, [0]), "{}", case.name);
    assert!(!case.decide([case.peek("a", &limit, 1)]).await.allowed, "{}", case.name);
}

async fn no_hits(case: &Case<'_>) {
    let limit = case.limit(1);
    let none = || [case.take("a", &limit, 0)];
    let fits = case.decide(none()).await;
    assert_eq!((fits.allowed, fits.remaining()), (true, [1]), "{}", case.name);
    assert!(case.decide([case.take("a", &limit, 1)]).await.allowed, "{}", case.name);
    let full = case.decide(none()).await;
    assert_eq!((full.allowed, full.remaining()), (false, [0]), "{}: tested as one", case.name);
}

async fn refunds(case: &Case<'_>) {
    let limit = case.limit(10);
    let refund = |hits| [case.refund("a", &limit, hits)];
    assert_eq!(case.decide(refund(3)).await.remaining(), [10], "{}: nothing used", case.name);
    assert!(case.decide([case.take("a", &limit, 10)]).await.allowed, "{}", case.name);
    assert!(!case.decide([case.take("a", &limit, 1)]).await.allowed, "{}", case.name);
    assert_eq!(case.decide(refund(2)).await.remaining(), [2], "{}", case.name);
    assert!(case.decide([case.take("a", &limit, 1)]).await.allowed, "{}", case.name);
    assert_eq!(case.decide(refund(100)).await.remaining(), [10], "{}: down to zero", case.name);
    assert_eq!(case.decide([case.take("a", &limit, 4)]).await.remaining(), [6], "{}", case.name);
}

async fn refunds_are_never_rejected(case: &Case<'_>) {
    let (full, other) = (case.limit(2), case.limit(5));
    let taken = [case.take("full", &full, 2), case.take("other", &other, 2)];
    assert!(case.decide(taken).await.allowed, "{}", case.name);
    let refund = [case.refund("full", &full, 0), case.refund("other", &other, 1)];
    let refund = case.decide(refund).await;
    assert!(refund.allowed, "{}: {refund:?}", case.name);
    assert_eq!((refund.within(), refund.remaining()), ([true, true], [0, 4]), "{}", case.name);
}

async fn overdraft(case: &Case<'_>) {
    let limit = case.overdraft(10);
    let over = case.decide([case.take("a", &limit, 25)]).await;
    assert_eq!((over.allowed, over.remaining()), (true, [0]), "{}", case.name);
    let rejected = case.decide([case.take("a", &limit, 3)]).await;
    assert_eq!((rejected.allowed, rejected.remaining()), (false, [0]), "{}", case.name);
    let refund = case.decide([case.refund("a", &limit, 27)]).await;
    assert_eq!(refund.remaining(), [9], "{}: what was rejected was taken too", case.name);
}

async fn overdraft_beside_another(case: &Case<'_>) {
    let (debt, strict) = (case.overdraft(10), case.limit(1));
    let both = |hits| [case.take("debt", &debt, hits), case.take("strict", &strict, 1)];
    let first = case.decide(both(4)).await;
    assert_eq!((first.allowed, first.remaining()), (true, [6, 0]), "{}", case.name);
    assert!(!case.decide(both(5)).await.allowed, "{}", case.name);
    assert_eq!(case.remaining("debt", &debt).await, 6, "{}: a strict limit rejects", case.name);
}

async fn counted(case: &Case<'_>) {
    let limit = case.limit(10).into_counted();
    let hits = |hits| [case.take("a", &limit, hits)];
    assert_eq!(case.decide(hits(8)).await.remaining(), [2], "{}", case.name);
    let rejected = case.decide(hits(5)).await;
    assert_eq!((rejected.allowed, rejected.remaining()), (false, [0]), "{}", case.name);
    let refund = case.decide([case.refund("a", &limit, 4)]).await;
    assert_eq!(refund.remaining(), [1], "{}: rejected hits count", case.name);
}

async fn shadow(case: &Case<'_>) {
    let (limit, full) = (case.limit(5), case.limit(1));
    let enforcement = Enforcement::Shadow;
    let both = |hits| {
        let shadow = CounterRequest { enforcement, ..case.take("shadow", &full, hits) };
        [case.take("enforced", &limit, hits), shadow]
    };
    let reported = case.decide(both(2)).await;
    assert_eq!((reported.allowed, reported.within()), (true, [true, false]), "{}", case.name);
    assert_eq!(reported.remaining(), [3, 1], "{}: a shadow that is over takes nothing", case.name);
    assert_eq!(case.decide(both(1)).await.remaining(), [2, 0], "{}", case.name);
    assert!(!case.decide(both(3)).await.allowed, "{}", case.name);
    assert_eq!(case.remaining("enforced", &limit).await, 2, "{}", case.name);
}

async fn quotas(case: &Case<'_>) {
    let limits = [case.limit(1), case.limit(2)];
    let quotas = || {
        [0, 1].map(|group| {
            let take = case.take(&format!("{group}"), &limits[group], 1);
            in_quota_group(group, take)
        })
    };
    for (allowed, within, remaining) in [
        (true, [true, true], [0, 1]),
        (true, [false, true], [0, 0]),
        (false, [false, false], [0, 0]),
    ] {
        let decided = case.decide(quotas()).await;
        let expected = (allowed, within, remaining);
        assert_eq!(
            (decided.allowed, decided.within(), decided.remaining()),
            expected,
            "{}",
            case.name
        );
    }
}

async fn too_many_hits(case: &Case<'_>) {
    let limit = case.limit(5);
    let rejected = case.decide([case.take("a", &limit, 6)]).await;
    assert_eq!((rejected.allowed, rejected.remaining()), (false, [5]), "{}", case.name);
    assert_eq!(rejected.statuses[0].retry_after_ms, None, "{}: it never fits", case.name);
    let nothing = case.limit(0);
    let rejected = case.decide([case.take("nothing", &nothing, 1)]).await;
    assert_eq!((rejected.allowed, rejected.remaining()), (false, [0]), "{}", case.name);
}

/// More than the shards of any store, and algorithms mixed in one request.
async fn many_counters(case: &Case<'_>) {
    let limits =
        Algorithm::ALL.map(|algorithm| Case { name: String::new(), algorithm, ..*case }.limit(2));
    let name = |at: usize| format!("counter {at}");
    let takes: [CounterRequest; 24] =
        std::array::from_fn(|at| case.take(&name(at), &limits[at % limits.len()], 1));
    for remaining in [1, 0] {
        let decided = case.decide(takes.clone()).await;
        assert_eq!(
            (decided.allowed, decided.remaining()),
            (true, [remaining; 24]),
            "{}",
            case.name
        );
    }
    assert!(!case.decide(takes).await.allowed, "{}", case.name);
}

async fn at_once(case: &Case<'_>) {
    let limit = case.limit(10);
    let requests = (0..40).map(|_| vec![case.take("a", &limit, 1)]);
    let decided = case.store.decide_at_once(requests, case.now_ms).await;
    let allowed = decided.iter().filter(|decision| decision.allowed).count();
    assert_eq!(allowed, 10, "{}", case.name);
    let mut left: Vec<u64> = decided
        .iter()
        .filter(|decision| decision.allowed)
        .map(|decision| decision.statuses[0].remaining)
        .collect();
    left.sort_unstable();
    assert_eq!(left, (0..10).collect::<Vec<_>>(), "{}: each hit counted once", case.name);
}

/// That this part of a layered store rejects on a limit that is known to be full.
pub async fn full_limit_is_decided_by(store: &Subject, source: Source) {
    let name = format!("{source:?}");
    let case = Case { store, name, algorithm: Algorithm::FixedWindow, now_ms: None };
    let limit = crate::counters::checked(&case.spec(1, FOREVER_MS));
    let take = || [case.take("a", &limit, 1)];
    assert!(case.decide(take()).await.allowed);
    assert!(!case.decide(take()).await.allowed);
    let again = case.decide(take()).await;
    assert_eq!((again.allowed, again.source), (false, source));
}
