//! Users have the permissions of their rules, and passwords change while connections are open.

use crate::support::acl::User;
use crate::support::resp::Connection;
use crate::support::servers::{RedisServer, Reply, Version};

fn refusal(reply: Reply) -> String {
    let Reply::Error(error) = reply else { panic!("a refusal expected: {reply:?}") };
    error
}

fn user(password: &str) -> User {
    User { name: "tidegate".to_owned(), password: password.to_owned() }
}

#[test]
fn a_user_has_the_permissions_of_its_rules_and_no_others() {
    for version in Version::ALL {
        let server = RedisServer::start(version);
        let user = user("first");
        server.add_user(&user, "~tg:* -@all +get +set");
        let done = server.command_as(&user, &["SET", "tg:a", "1"]);
        assert_eq!(done, Reply::Status("OK".to_owned()), "{version:?}");
        for command in [&["SET", "other", "1"] as &[_], &["DEL", "tg:a"]] {
            let refused = refusal(server.command_as(&user, command));
            assert!(refused.starts_with("NOPERM"), "{version:?} {command:?}: {refused}");
        }
        assert_eq!(user.url_of(&server), format!("redis://tidegate:first@{}", server.addr()));
    }
}

#[test]
fn a_changed_password_applies_to_new_connections_only() {
    for version in Version::ALL {
        let server = RedisServer::start(version);
        let mut user = user("first");
        server.add_user(&user, "~* -@all +get");
        let mut old = Connection::open(server.port()).unwrap();
        old.command(&["AUTH", &user.name, &user.password]).unwrap();
        let before = user.clone();
        server.change_password(&mut user, "second");
        assert_eq!(old.command(&["GET", "a"]).unwrap(), Reply::Nil, "{version:?}");
        let refused = refusal(server.command_as(&before, &["GET", "a"]));
        assert!(refused.starts_with("WRONGPASS"), "{version:?}: {refused}");
        assert_eq!(server.command_as(&user, &["GET", "a"]), Reply::Nil, "{version:?}");
        assert!(server.end_connections_of(&user) >= 1, "{version:?}");
        assert!(old.command(&["GET", "a"]).is_err(), "{version:?}");
    }
}
