//! Script runs that decide many requests: in order, each for itself, in runs of bounded size.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on panics")]

use std::sync::Arc;

use tidegate::decide::Ask;
use tidegate::limit::Algorithm;
use tidegate::store::StoreError;
use tidegate::store::redis::RedisStore;

use crate::asks::{limit, mixed, peek, take};
use crate::support::servers::{RedisServer, Version};
use crate::support::stores::{decide, decide_at_once, store_on};

/// More than any test takes.
const HOUR_MS: u64 = 3_600_000;

#[tokio::test]
async fn requests_of_one_script_run_are_decided_in_their_order() {
    for version in Version::ALL {
        let server = RedisServer::start(version);
        let store = store_on(&server).await;
        decide(&store, &mixed(1)).await;
        let before = server.evalsha_calls();
        let once = limit(Algorithm::FixedWindow, 1, HOUR_MS);
        let mut other = mixed(6);
        other.push(take("once", &once));
        let requests = [mixed(6), other.clone(), other, vec![], mixed(3)];
        let requests: Vec<&[Ask]> = requests.iter().map(Vec::as_slice).collect();
        let decisions = store.decide_all(&requests, None).await.unwrap();
        assert_eq!(server.evalsha_calls() - before, 1, "{version:?}");
        let allowed: Vec<_> = decisions.iter().map(|decision| decision.allowed).collect();
        assert_eq!(allowed, [true, true, false, true, true], "{version:?}");
        let counters: Vec<_> = decisions.iter().map(|decision| decision.statuses.len()).collect();
        assert_eq!(counters, [6, 7, 7, 0, 3], "{version:?}");
        // One hit before this run, and of the three earlier requests two passed.
        assert_eq!(decisions[4].statuses[0].remaining, 96, "{version:?}");
    }
}

/// How many of requests that come at once pass.
async fn passing(store: &Arc<RedisStore>, requests: impl IntoIterator<Item = Vec<Ask>>) -> usize {
    let decisions = decide_at_once(store, requests).await;
    decisions.into_iter().filter(|decision| decision.as_ref().unwrap().allowed).count()
}

#[tokio::test]
async fn requests_that_come_together_travel_together_in_runs_of_bounded_size() {
    for version in Version::ALL {
        let server = RedisServer::start(version);
        let store = Arc::new(store_on(&server).await);
        decide(&store, &mixed(1)).await;
        let hourly = limit(Algorithm::SlidingWindowLog, 50, HOUR_MS);
        let before = server.evalsha_calls();
        let passed = passing(&store, vec![vec![take("all", &hourly)]; 200]).await;
        assert_eq!(passed, 50, "{version:?}");
        let runs = server.evalsha_calls() - before;
        // 64 requests a run at most, and fewer where they weigh more.
        assert!((4..=20).contains(&runs), "{version:?}: {runs} runs");
        let before = server.evalsha_calls();
        let wide = |at: usize| {
            let limit = limit(Algorithm::TokenBucket, 50, HOUR_MS);
            (0..30).map(|limits| take(&format!("{at} {limits}"), &limit)).collect()
        };
        assert_eq!(passing(&store, (0..64).map(wide)).await, 64, "{version:?}");
        let runs = server.evalsha_calls() - before;
        assert!((11..=64).contains(&runs), "{version:?}: {runs} runs of 30 limits a request");
    }
}

#[tokio::test]
async fn a_strange_key_harms_only_those_who_ask_for_it() {
    for version in Version::ALL {
        let server = RedisServer::start(version);
        let store = Arc::new(store_on(&server).await);
        decide(&store, &mixed(1)).await;
        let hourly = limit(Algorithm::TokenBucket, 100, HOUR_MS);
        let strange = take("strange", &hourly);
        server.command(&[b"SET".as_slice(), strange.key.as_bytes(), b"xyz"]);
        let names = (0..40).map(|at| if at % 10 == 3 { "strange" } else { "good" });
        let requests = names.map(|name| vec![take(name, &hourly)]);
        let mut broken = 0;
        for decision in decide_at_once(&store, requests).await {
            match decision {
                Ok(decision) => assert!(decision.allowed, "{version:?}"),
                Err(StoreError::Broken(_)) => broken += 1,
                Err(other) => panic!("{version:?}: {other:?}"),
            }
        }
        assert_eq!(broken, 4, "{version:?}");
        let left = decide(&store, &[peek("good", &hourly)]).await.statuses[0].remaining;
        assert_eq!(left, 100 - 36, "{version:?}: each was counted once");
        assert!(store.ready().await.is_ok(), "the store decides");
    }
}
