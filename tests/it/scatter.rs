//! Requests whose counters are on several independent servers, and connections with TLS and users.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate::proto::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use tokio::task::JoinSet;

use tidegate::store::redis::ring::Ring;

use crate::support::client::{Caller, Request, Served, request};
use crate::support::process::eventually;
use crate::support::proxy::{Mode, Proxy};
use crate::support::servers::{RedisServer, Version};
use crate::support::stores::DEADLINE;

const TENANTS: u64 = 40;
const LIMITS: &str = "{domain: edge, slot_by: [tenant], descriptors: [\
    {key: tenant, rate_limit: {limit: 20, period: 1h, algorithm: sliding_window_log}}, \
    {key: everyone, rate_limit: {limit: 300, period: 1h, algorithm: sliding_window_log}}]}";

fn both(tenant: u64) -> Request {
    request("edge").about("tenant", tenant.to_string()).about("everyone", "")
}

async fn remaining(caller: &Caller, tenant: u64) -> (u64, u64) {
    let quota = caller.quota(&both(tenant)).await.unwrap();
    (quota.statuses[0].remaining(), quota.statuses[1].remaining())
}

fn served(servers: &[RedisServer]) -> Served {
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let args = ["--store", &urls.join(","), "--store-timeout", "10s"];
    Served::with(&[LIMITS], &args)
}

#[tokio::test]
async fn a_request_over_several_servers_takes_from_all_or_from_none() {
    let servers = [Version::Redis70, Version::Redis70].map(RedisServer::start);
    let served = served(&servers);
    let caller = served.caller().await;
    for tenant in 0..TENANTS {
        for taken in 1..=3 {
            let before = remaining(&caller, tenant).await;
            assert!(caller.allows(&both(tenant)).await);
            let after = remaining(&caller, tenant).await;
            assert_eq!(after, (20 - taken, before.1 - 1), "tenant {tenant}");
        }
        // More than the tenant has left, and less than `everyone` has: hits are given back where
        // they were taken.
        let rejected = caller.check(&both(tenant).each_taking(18)).await.unwrap();
        assert!(rejected.statuses[1].within_limit && !rejected.statuses[0].within_limit);
        let reported = (rejected.statuses[0].remaining(), rejected.statuses[1].remaining());
        assert_eq!(reported, remaining(&caller, tenant).await);
        assert_eq!(reported, (17, 300 - 3 * (tenant + 1)));
    }
    let keys = servers.iter().map(|server| server.command(&["DBSIZE"]));
    let keys: Vec<_> = keys.collect();
    assert!(keys.iter().all(|keys| format!("{keys:?}") != "Int(0)"), "on both: {keys:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_requests_lose_and_invent_no_hits() {
    let servers = [Version::Redis70, Version::Redis70].map(RedisServer::start);
    let served = served(&servers);
    let passed = Arc::new((0..TENANTS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
    let mut callers = JoinSet::new();
    for number in 0..8 {
        let (caller, passed) = (served.caller().await, Arc::clone(&passed));
        callers.spawn(async move {
            for at in 0..200 {
                let tenant = (at * 7 + number) % TENANTS;
                if caller.allows(&both(tenant)).await {
                    passed[usize::try_from(tenant).unwrap()].fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended.unwrap();
    }
    let caller = served.caller().await;
    let mut all = 0;
    for (tenant, passed) in (0..TENANTS).zip(passed.iter()) {
        let passed = passed.load(Ordering::Relaxed);
        assert_eq!(remaining(&caller, tenant).await.0, 20 - passed, "tenant {tenant}");
        all += passed;
    }
    // Hits that are being given back may reject others, so that a few of `everyone` may remain.
    assert!((250..=300).contains(&all), "{all} passed");
    assert_eq!(remaining(&caller, 0).await.1, 300 - all);
}

#[tokio::test]
async fn a_server_that_refuses_is_reported_while_the_other_decides() {
    let servers = [Version::Redis70, Version::Redis70].map(RedisServer::start);
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let args =
        ["--store", &urls.join(","), "--store-timeout", "10s", "--on-store-failure", "error"];
    let served = Served::with(&[LIMITS], &args);
    let caller = served.caller().await;
    let one = |tenant: u64| request("edge").about("tenant", tenant.to_string());
    servers[0].command(&["CONFIG", "SET", "maxmemory", "1"]);
    let (mut decided, mut refused) = (0, 0);
    for tenant in 0..TENANTS {
        match caller.check(&one(tenant)).await {
            Ok(_decision) => decided += 1,
            Err(_refusal) => refused += 1,
        }
        // For any order of the servers.
        assert_eq!(served.page("/readyz").status, if refused > 0 { 503 } else { 200 });
    }
    assert!(decided > 0 && refused > 0, "{decided} and {refused}");
    servers[0].command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(served.page("/readyz").status, 200, "a probe finds out");
}

#[tokio::test]
async fn on_several_servers_only_an_allowed_request_gives_back() {
    let servers = [Version::Redis70, Version::Redis70].map(RedisServer::start);
    let served = served(&servers);
    let caller = served.caller().await;
    let everyone = request("edge").about("everyone", "").taking(5).giving_back();
    for tenant in 0..TENANTS {
        let paying = |hits| everyone.clone().about("tenant", tenant.to_string()).taking(hits);
        assert!(caller.allows(&both(tenant)).await);
        // Five are more than the limit: a refund that is taken back would leave five.
        let rejected = caller.should(&paying(20)).await.unwrap();
        let codes: Vec<_> = rejected.statuses.iter().map(DescriptorStatus::code).collect();
        assert_eq!(codes, [Code::Ok, Code::OverLimit], "tenant {tenant}");
        assert_eq!(rejected.statuses[0].limit_remaining, 299);
        assert_eq!(remaining(&caller, tenant).await, (19, 299), "tenant {tenant}");
        let passing = caller.should(&paying(19)).await.unwrap();
        assert_eq!(passing.overall_code(), Code::Ok);
        assert_eq!(passing.statuses[0].limit_remaining, 300);
        assert_eq!(remaining(&caller, tenant).await, (0, 300), "tenant {tenant}");
    }
}

#[tokio::test]
async fn quotas_on_several_servers_reject_together_and_take_where_there_is_capacity() {
    let limits = "{domain: quotas, slot_by: [model], descriptors: [{key: model, quota_mode: true, \
        rate_limit: {limit: 2, period: 1h, algorithm: sliding_window_log}}]}";
    let servers = [Version::Redis70, Version::Redis70].map(RedisServer::start);
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let args = ["--store", &urls.join(","), "--store-timeout", "10s"];
    let served = Served::with(&[limits], &args);
    let caller = served.caller().await;
    let model = |number: u64| request("quotas").about("model", number.to_string());
    for first in 0..TENANTS / 2 {
        let second = first + TENANTS / 2;
        let both = model(first).about("model", second.to_string());
        assert!(caller.allows(&model(first).taking(2)).await);
        for left in [1, 0] {
            assert!(caller.allows(&both).await, "the second model has room");
            assert_eq!(caller.remaining(&model(first)).await, 0);
            assert_eq!(caller.remaining(&model(second)).await, left);
        }
        assert!(!caller.allows(&both).await, "models {first} and {second} are over");
    }
}

/// Waits until a request is allowed; a denial that is kept for a minute fails the test.
async fn allowed_in_the_end(caller: &Caller, request: &Request) {
    let allowed = async || caller.allows(request).await.then_some(());
    eventually(DEADLINE, allowed).await.expect("a denial that no longer holds ends");
}

/// A tenant whose counters are on another server than those of `everyone`, and the server.
fn tenant_apart(names: &[String]) -> (u64, usize) {
    let ring = Ring::new(names).unwrap();
    let server_of = |tenant| ring.server_of(format!("edge,tenant={tenant}").as_bytes());
    let tenant = (0..TENANTS).find(|t| server_of(*t) != ring.server_of(b"edge")).unwrap();
    (tenant, server_of(tenant))
}

#[tokio::test]
async fn hits_given_back_are_not_denied_by_another_replica() {
    const SINGLE: &str = "{domain: edge, slot_by: [tenant], descriptors: [\
        {key: tenant, rate_limit: {limit: 1, period: 1h, algorithm: sliding_window_log}}, \
        {key: everyone, rate_limit: {limit: 1, period: 1h, algorithm: sliding_window_log}}]}";
    let servers = [Version::Redis70, Version::Redis70].map(RedisServer::start);
    let proxies = [&servers[0], &servers[1]].map(|server| Proxy::before(server.addr()));
    let urls = proxies.each_ref().map(Proxy::url).join(",");
    let args = ["--store", &urls, "--store-timeout", "10s", "--deny-cache-ttl", "1m"];
    let replicas = [Served::with(&[SINGLE], &args), Served::with(&[SINGLE], &args)];
    // A replica that starts while a server hangs would wait for it.
    for replica in &replicas {
        assert_eq!(replica.page("/readyz").status, 200);
    }
    let (first, second) = (replicas[0].caller().await, replicas[1].caller().await);
    let (tenant, server) = tenant_apart(&proxies.each_ref().map(|p| p.addr().to_string()));
    let everyone = request("edge").about("everyone", "");

    // The tenant is full, and the server that reports it answers late: meanwhile the other one has
    // taken hits that it has to give back.
    assert!(first.allows(&request("edge").about("tenant", tenant.to_string())).await);
    proxies[server].set(Mode::Stall);
    let spread = tokio::spawn(async move { first.allows(&both(tenant)).await });
    let taken = async || (second.remaining(&everyone).await == 0).then_some(());
    eventually(DEADLINE, taken).await.expect("the other server takes hits");
    assert!(!second.allows(&everyone).await);
    proxies[server].set(Mode::Pass);
    assert!(!spread.await.unwrap());
    assert_eq!(second.remaining(&everyone).await, 1, "given back");
    allowed_in_the_end(&second, &everyone).await;
}
