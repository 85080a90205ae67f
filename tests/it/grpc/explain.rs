//! GetQuota explains which rule each descriptor matches, or why none.

use tidegate::proto::tidegate::v1::Match;

use crate::support::client::{Caller, Request, Served, request};

const EDGE: &str = "
domain: edge
descriptors:
  - key: user_id
    rate_limit: { limit: 3, period: 1h, name: per_user }
  - key: vip
    rate_limit: { limit: 9, period: 1h, replaces: [{ name: per_user }] }
  - key: free
    rate_limit: { unlimited: true }
  - key: exempt
  - key: tenant
    descriptors:
      - key: path
        value: /login
        rate_limit: { limit: 5, period: 1h }
      - key: path
        value: /search
        rate_limit: { limit: 5, period: 1h }
";

const OTHER: &str =
    "{domain: internal, descriptors: [{key: k, rate_limit: {limit: 1, period: 1h}}]}";

/// The explanations: match, path and detail.
async fn explained(caller: &Caller, request: &Request) -> Vec<(Match, String, String)> {
    let quota = caller.quota(&request.clone().explained()).await.unwrap();
    let explanations = quota.explanations.into_iter().zip(0..).map(|(explanation, at)| {
        assert_eq!(explanation.descriptor_index, at);
        (explanation.r#match(), explanation.path, explanation.detail)
    });
    explanations.collect()
}

#[tokio::test]
async fn each_descriptor_has_its_rule_or_the_reason_why_it_has_none() {
    let served = Served::with(&[EDGE, OTHER], &[]);
    let caller = served.caller().await;
    let tenant = || request("edge").about("tenant", "acme");
    let keys = "exempt, free, tenant, user_id, vip";
    for (asked, matched, path, detail) in [
        (request("edge").about("user_id", "42"), Match::Limited, "user_id", String::new()),
        (tenant().and("path", "/login"), Match::Limited, "tenant/path=/login", String::new()),
        (request("edge").about("free", "x"), Match::Exempt, "free", "the rule is unlimited".into()),
        (
            request("edge").about("exempt", "x"),
            Match::Exempt,
            "exempt",
            "the rule has no limit".into(),
        ),
        (
            tenant(),
            Match::Exempt,
            "tenant",
            "the rule has no limit itself; its limits are nested below, under path".into(),
        ),
        (
            request("edge").about("user", "42"),
            Match::NoRule,
            "",
            r#"no rule has the key "user" here; did you mean "user_id""#.into(),
        ),
        (
            request("edge").about("colour", "red"),
            Match::NoRule,
            "",
            format!(r#"no rule has the key "colour" here; known are {keys}"#),
        ),
        (
            tenant().and("paht", "/login"),
            Match::NoRule,
            "tenant",
            r#"no rule has the key "paht" here; did you mean "path""#.into(),
        ),
        (
            tenant().and("path", "/logn"),
            Match::NoRule,
            "tenant",
            r#"no rule of the key "path" has this value; did you mean "/login""#.into(),
        ),
        (
            tenant().and("path", "/orders"),
            Match::NoRule,
            "tenant",
            r#"no rule of the key "path" has this value"#.into(),
        ),
        (
            request("edge").about("user_id", "42").and("path", "/"),
            Match::NoRule,
            "user_id",
            r#"no rules are nested here, so the entry "path" is too much"#.into(),
        ),
        (
            request("interal").about("k", "v"),
            Match::UnknownDomain,
            "",
            r#"no limits file has the domain "interal"; did you mean "internal""#.into(),
        ),
        (
            request("nowhere").about("k", "v"),
            Match::UnknownDomain,
            "",
            r#"no limits file has the domain "nowhere""#.into(),
        ),
    ] {
        let expected = vec![(matched, path.to_owned(), detail)];
        assert_eq!(explained(&caller, &asked).await, expected, "{asked:?}");
    }
}

#[tokio::test]
async fn a_replaced_limit_names_the_rule_that_replaces_it() {
    let served = Served::with_limits(EDGE);
    let caller = served.caller().await;
    let both = request("edge").about("user_id", "42").about("vip", "42");
    let replaced = (Match::Exempt, "user_id".into(), r#""per_user" is replaced by "vip""#.into());
    let vip = (Match::Limited, "vip".into(), String::new());
    assert_eq!(explained(&caller, &both).await, [replaced, vip]);
}

#[tokio::test]
async fn without_being_asked_nothing_is_explained() {
    let served = Served::with_limits(EDGE);
    let quota = served.caller().await.quota(&request("edge").about("usr", "42")).await.unwrap();
    assert_eq!(quota.explanations, []);
}

#[tokio::test]
async fn thousands_of_domains_and_descriptors_are_explained_in_bounded_time() {
    let domain = |at| {
        format!(
            "{{domain: domain-{at:04}, descriptors: [{{key: k{at}, rate_limit: {{limit: 1, period: 1h}}}}]}}"
        )
    };
    let domains: Vec<_> = (0..2_000).map(domain).collect();
    let domains: Vec<_> = domains.iter().map(String::as_str).collect();
    let served = Served::with(&domains, &[]);
    let caller = served.caller().await;
    let many = (0..256).fold(request("domain-x"), |request, _| request.about("kk", "v"));
    for (_, _, detail) in explained(&caller, &many).await {
        assert!(detail.contains("did you mean \"domain-"), "{detail}");
    }
}
