//! Script runs that decide many requests: in order, independently, in runs of bounded size.

use std::sync::Arc;

use tidegate::decide::CounterRequest;
use tidegate::limit::Algorithm;

use crate::counters::{key_in, limit, mixed, peek, take};
use crate::support::acl::User;
use crate::support::process::wait_until;
use crate::support::servers::{RedisServer, Reply, Version};
use crate::support::stores::{
    DEADLINE, Layered, decide, decide_at_once, shared, store_at, store_on,
};

/// Longer than any test takes.
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
        let requests: Vec<&[CounterRequest]> = requests.iter().map(Vec::as_slice).collect();
        let decisions = store.inner().transact_batch(&requests, None).await.unwrap();
        assert_eq!(server.evalsha_calls() - before, 1, "{version:?}");
        let allowed: Vec<_> = decisions.iter().map(|decision| decision.allowed).collect();
        assert_eq!(allowed, [true, true, false, true, true], "{version:?}");
        let counters: Vec<_> = decisions.iter().map(|decision| decision.statuses.len()).collect();
        assert_eq!(counters, [6, 7, 7, 0, 3], "{version:?}");
        // One hit before this run, and two of the three earlier requests passed.
        assert_eq!(decisions[4].statuses[0].remaining, 96, "{version:?}");
    }
}

/// The number of concurrent requests that pass.
async fn passing(
    store: &Arc<Layered>,
    requests: impl IntoIterator<Item = Vec<CounterRequest>>,
) -> usize {
    let decisions = decide_at_once(store, requests).await;
    decisions.into_iter().filter(|decision| decision.as_ref().unwrap().allowed).count()
}

#[tokio::test]
async fn concurrent_requests_share_runs_of_bounded_size() {
    for version in Version::ALL {
        let server = RedisServer::start(version);
        let store = Arc::new(store_on(&server).await);
        decide(&store, &mixed(1)).await;
        let hourly = limit(Algorithm::SlidingWindowLog, 50, HOUR_MS);
        let before = server.evalsha_calls();
        let passed = passing(&store, vec![vec![take("all", &hourly)]; 200]).await;
        assert_eq!(passed, 50, "{version:?}");
        let runs = server.evalsha_calls() - before;
        // At most 64 requests per run, and fewer if they weigh more.
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
async fn a_key_of_another_type_affects_only_its_own_requests() {
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
                Err(error) if error.kind() == "wrong_type" => broken += 1,
                Err(other) => panic!("{version:?}: {other:?}"),
            }
        }
        assert_eq!(broken, 4, "{version:?}");
        let left = decide(&store, &[peek("good", &hourly)]).await.statuses[0].remaining;
        assert_eq!(left, 100 - 36, "{version:?}: each was counted once");
        assert!(store.ready().await.is_ok(), "the store decides");
    }
}

/// Sends concurrent requests to these counters in turn, of which some are refused with an error of
/// this kind; returns the remaining hits of each of the others.
async fn some_are_refused(
    store: &Arc<Layered>,
    counter_requests: &[CounterRequest],
    kind: &str,
) -> Vec<Option<u64>> {
    let requests = (0..40).map(|at| vec![counter_requests[at % counter_requests.len()].clone()]);
    let decisions = decide_at_once(store, requests).await;
    let left = decisions.into_iter().map(|decision| match decision {
        Ok(decision) => Some(decision.statuses[0].remaining),
        Err(error) if error.kind() == kind => None,
        Err(other) => panic!("{other:?}"),
    });
    left.collect()
}

#[tokio::test]
async fn a_counter_without_permission_affects_no_other() {
    for version in Version::ALL {
        let server = RedisServer::start(version);
        let user = User { name: "edge".to_owned(), password: "x".to_owned() };
        server.add_user(&user, "~tg:{test}:* +@all");
        let store = Arc::new(store_at(&user.url_of(&server), &shared(0)).await);
        let hourly = limit(Algorithm::TokenBucket, 100, HOUR_MS);
        let mine = take("mine", &hourly);
        let others = CounterRequest { key: key_in("other", "x", &hourly), ..mine.clone() };
        let left = some_are_refused(&store, &[mine, others], "noperm").await;
        let counted: Vec<_> = left.iter().step_by(2).copied().collect();
        let each_once: Vec<_> = (80..100).rev().map(Some).collect();
        assert_eq!(counted, each_once, "{version:?}");
        assert!(left.iter().skip(1).step_by(2).all(Option::is_none), "{version:?}");
    }
}

/// A server that refuses writes, once `full` has no hit left: requests to it are rejected.
async fn still_rejects(server: &RedisServer, kind: &str, refuse: impl FnOnce()) {
    let store = Arc::new(store_on(server).await);
    let (full, open) = (
        take("full", &limit(Algorithm::FixedWindow, 1, 36_500 * 24 * HOUR_MS)),
        take("open", &limit(Algorithm::FixedWindow, 100, HOUR_MS)),
    );
    assert!(decide(&store, std::slice::from_ref(&full)).await.allowed);
    refuse();
    for round in 0..5 {
        let left = some_are_refused(&store, &[full.clone(), open.clone()], kind).await;
        let wanted: Vec<_> = [Some(0), None].into_iter().cycle().take(40).collect();
        assert_eq!(left, wanted, "{:?}, round {round}", server.version());
        let ready = store.ready().await.unwrap_err();
        assert_eq!(
            ready.kind(),
            kind,
            "{:?}: rejections are no sign of recovery",
            server.version()
        );
    }
}

fn set(server: &RedisServer, name: &str, value: &str) {
    let reply = server.command(&["CONFIG", "SET", name, value]);
    assert_eq!(reply, Reply::Status("OK".to_owned()), "{name}");
}

#[tokio::test]
async fn a_server_without_memory_still_rejects_requests_over_the_limit() {
    for version in Version::ALL {
        let server = RedisServer::start(version);
        still_rejects(&server, "oom", || set(&server, "maxmemory", "1")).await;
    }
}

#[tokio::test]
async fn a_server_that_cannot_save_still_rejects_requests_over_the_limit() {
    for version in Version::ALL {
        // A folder that nobody can write to.
        let server =
            RedisServer::start_with(version, &["--dir", "/proc", "--save", "3600", "1000000"]);
        let refuse = || {
            server.command(&["BGSAVE"]);
            let failed = || {
                let persistence = server.info("persistence");
                persistence.contains("rdb_last_bgsave_status:err").then_some(())
            };
            wait_until(DEADLINE, failed).expect("it cannot save");
        };
        still_rejects(&server, "misconf", refuse).await;
    }
}

#[tokio::test]
async fn a_server_without_its_replicas_still_rejects_requests_over_the_limit() {
    // Redis 6.2 lets scripts write anyway.
    for version in [Version::Redis70, Version::Valkey91] {
        let server = RedisServer::start(version);
        still_rejects(&server, "noreplicas", || set(&server, "min-replicas-to-write", "1")).await;
    }
}
