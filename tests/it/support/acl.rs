//! Users of a server, their permissions, and passwords that change while it runs.

use super::resp::{Connection, Reply};
use super::servers::RedisServer;

/// A user of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub password: String,
}

impl User {
    /// The server's URL for this user.
    pub fn url_of(&self, server: &RedisServer) -> String {
        format!("redis://{}:{}@127.0.0.1:{}", self.name, self.password, server.port())
    }
}

impl RedisServer {
    /// Creates a user with the permissions in `rules`, in the syntax of `ACL SETUSER`: `~* -@all
    /// +get`. Clients without a user name still have all permissions.
    ///
    /// # Panics
    /// When the server refuses the rules.
    pub fn add_user(&self, user: &User, rules: &str) {
        let password = format!(">{}", user.password);
        let fixed = ["ACL", "SETUSER", &user.name, "reset", "on", &password];
        let command: Vec<_> = fixed.into_iter().chain(rules.split_whitespace()).collect();
        let reply = self.command(&command);
        assert_eq!(reply, Reply::Status("OK".to_owned()), "{rules}");
    }

    /// Changes the password for new connections; open ones stay, until
    /// [`RedisServer::end_connections_of`].
    ///
    /// # Panics
    /// When the server refuses.
    pub fn change_password(&self, user: &mut User, password: &str) {
        let given = format!(">{password}");
        let reply = self.command(&["ACL", "SETUSER", &user.name, "resetpass", &given]);
        assert_eq!(reply, Reply::Status("OK".to_owned()));
        password.clone_into(&mut user.password);
    }

    /// Closes a user's connections; returns their number.
    pub fn end_connections_of(&self, user: &User) -> u64 {
        self.command(&["CLIENT", "KILL", "USER", &user.name]).into_count()
    }

    /// Sends one command as a user.
    ///
    /// # Panics
    /// When no reply comes in time. A refusal is a [`Reply::Error`].
    pub fn command_as(&self, user: &User, args: &[&str]) -> Reply {
        let mut connection = Connection::open(self.port()).expect("the server listens");
        let greeted = connection.command(&["AUTH", &user.name, &user.password]).expect("a reply");
        if let Reply::Error(_) = greeted {
            return greeted;
        }
        connection.command(args).expect("a reply")
    }
}
